#include "error_text.h"

namespace infini::rt::runtime::detail {
namespace {

struct Text {
  Error error;
  const char* name;
  const char* sentence;
};

#define INFINI_RT_TEXT(enumerator, sentence) \
  { enumerator, #enumerator, sentence }

constexpr Text kTexts[] = {
    INFINI_RT_TEXT(kSuccess, "no error"),
    INFINI_RT_TEXT(kErrorInvalidValue, "invalid argument"),
    INFINI_RT_TEXT(kErrorMemoryAllocation, "out of memory"),
    INFINI_RT_TEXT(kErrorInitializationError, "the runtime could not be initialized"),
    INFINI_RT_TEXT(kErrorCudartUnloading, "the runtime is shutting down"),
    INFINI_RT_TEXT(kErrorInvalidMemcpyDirection, "invalid copy direction"),
    INFINI_RT_TEXT(kErrorInsufficientDriver, "the driver is too old for the runtime"),
    INFINI_RT_TEXT(kErrorDevicesUnavailable, "all devices are busy or unavailable"),
    INFINI_RT_TEXT(kErrorNoDevice, "no device was found"),
    INFINI_RT_TEXT(kErrorInvalidDevice, "invalid device index or backend"),
    INFINI_RT_TEXT(kErrorInvalidResourceHandle, "invalid handle"),
    INFINI_RT_TEXT(kErrorIllegalState, "the object is in the wrong state for this operation"),
    INFINI_RT_TEXT(kErrorNotReady, "the work is not finished"),
    INFINI_RT_TEXT(kErrorIllegalAddress, "a kernel accessed an illegal address"),
    INFINI_RT_TEXT(kErrorLaunchTimeout, "a kernel ran too long and was ended"),
    INFINI_RT_TEXT(kErrorAssert, "an assertion failed in a kernel"),
    INFINI_RT_TEXT(kErrorHardwareStackError, "the device reported a stack error"),
    INFINI_RT_TEXT(kErrorIllegalInstruction, "a kernel executed an illegal instruction"),
    INFINI_RT_TEXT(kErrorMisalignedAddress, "a kernel accessed a misaligned address"),
    INFINI_RT_TEXT(kErrorInvalidAddressSpace, "a kernel used an address of the wrong space"),
    INFINI_RT_TEXT(kErrorInvalidPc, "a kernel's program counter left its code"),
    INFINI_RT_TEXT(kErrorLaunchFailure, "a kernel failed"),
    INFINI_RT_TEXT(kErrorNotPermitted, "the operation is not permitted here"),
    INFINI_RT_TEXT(kErrorNotSupported, "the operation is not supported by this backend"),
    INFINI_RT_TEXT(kErrorStreamCaptureUnsupported, "not permitted while a stream is capturing"),
    INFINI_RT_TEXT(kErrorStreamCaptureInvalidated, "an earlier error invalidated the capture"),
    INFINI_RT_TEXT(kErrorStreamCaptureMerge, "the operation would merge two captures"),
    INFINI_RT_TEXT(kErrorStreamCaptureUnmatched, "the capture did not begin in this stream"),
    INFINI_RT_TEXT(kErrorStreamCaptureUnjoined,
                   "the capture has work that was not joined to its origin"),
    INFINI_RT_TEXT(kErrorStreamCaptureIsolation, "a dependency would cross the capture's boundary"),
    INFINI_RT_TEXT(kErrorStreamCaptureImplicit,
                   "the default stream would depend on a capturing stream"),
    INFINI_RT_TEXT(kErrorCapturedEvent, "the event was last recorded in a capturing stream"),
    INFINI_RT_TEXT(kErrorStreamCaptureWrongThread, "the capture began in another thread"),
    INFINI_RT_TEXT(kErrorUnknown, "unknown error"),
};

#undef INFINI_RT_TEXT

const Text* Find(Error error) {
  for (const Text& text : kTexts) {
    if (text.error == error) return &text;
  }
  return nullptr;
}

}  // namespace

const char* ErrorName(Error error) noexcept {
  const Text* text = Find(error);
  return text ? text->name : nullptr;
}

const char* ErrorString(Error error) noexcept {
  const Text* text = Find(error);
  return text ? text->sentence : nullptr;
}

}  // namespace infini::rt::runtime::detail
