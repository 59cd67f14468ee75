#pragma once

#include <cstddef>
#include <cstdint>

namespace infini::rt::runtime {

/// Status of every call. The names and the numbers are CUDA's on every backend; a vendor's own
/// code is translated by name. A code without a name here is passed through as its number.
enum Error : int {
  kSuccess = 0,
  kErrorInvalidValue = 1,
  kErrorMemoryAllocation = 2,
  kErrorInitializationError = 3,
  kErrorCudartUnloading = 4,
  kErrorInvalidMemcpyDirection = 21,
  kErrorInsufficientDriver = 35,
  kErrorDevicesUnavailable = 46,
  kErrorNoDevice = 100,
  kErrorInvalidDevice = 101,
  kErrorInvalidResourceHandle = 400,
  kErrorIllegalState = 401,
  kErrorNotReady = 600,
  kErrorIllegalAddress = 700,
  kErrorLaunchTimeout = 702,
  kErrorAssert = 710,
  kErrorHardwareStackError = 714,
  kErrorIllegalInstruction = 715,
  kErrorMisalignedAddress = 716,
  kErrorInvalidAddressSpace = 717,
  kErrorInvalidPc = 718,
  kErrorLaunchFailure = 719,
  kErrorNotPermitted = 800,
  kErrorNotSupported = 801,
  kErrorStreamCaptureUnsupported = 900,
  kErrorStreamCaptureInvalidated = 901,
  kErrorStreamCaptureMerge = 902,
  kErrorStreamCaptureUnmatched = 903,
  kErrorStreamCaptureUnjoined = 904,
  kErrorStreamCaptureIsolation = 905,
  kErrorStreamCaptureImplicit = 906,
  kErrorCapturedEvent = 907,
  kErrorStreamCaptureWrongThread = 908,
  kErrorUnknown = 999,
};

/// Direction of a copy. `kMemcpyDefault` infers it from the pointers.
enum MemcpyKind : int {
  kMemcpyHostToHost = 0,
  kMemcpyHostToDevice = 1,
  kMemcpyDeviceToHost = 2,
  kMemcpyDeviceToDevice = 3,
  kMemcpyDefault = 4,
};

/// Which calls a capture forbids: calls from any thread, calls from the capturing thread, or none
/// beyond those that touch the captured streams.
enum StreamCaptureMode : int {
  kStreamCaptureModeGlobal = 0,
  kStreamCaptureModeThreadLocal = 1,
  kStreamCaptureModeRelaxed = 2,
};

enum StreamCaptureStatus : int {
  kStreamCaptureStatusNone = 0,
  kStreamCaptureStatusActive = 1,
  kStreamCaptureStatusInvalidated = 2,
};

/// Attributes of a memory pool. The value behind the pointer is an `int` for the three reuse
/// switches and a `std::uint64_t` number of bytes for the others. The current figures are read
/// only; the peaks accept 0, which restarts them.
enum MemPoolAttr : int {
  kMemPoolReuseFollowEventDependencies = 1,
  kMemPoolReuseAllowOpportunistic = 2,
  kMemPoolReuseAllowInternalDependencies = 3,
  kMemPoolAttrReleaseThreshold = 4,
  kMemPoolAttrReservedMemCurrent = 5,
  kMemPoolAttrReservedMemHigh = 6,
  kMemPoolAttrUsedMemCurrent = 7,
  kMemPoolAttrUsedMemHigh = 8,
};

/// Opaque handles. Each carries the backend's own handle unchanged, so that
/// `reinterpret_cast<cudaStream_t>(stream)` is valid with the NVIDIA backend, and likewise for the
/// others where the vendor's handle is a pointer.
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Graph = struct GraphHandle*;
using GraphExec = struct GraphExecHandle*;
using MemPool = struct MemPoolHandle*;

/// The legacy default stream (the same as a null stream) and the calling thread's own default
/// stream.
inline const Stream kStreamLegacy = reinterpret_cast<Stream>(std::uintptr_t{1});
inline const Stream kStreamPerThread = reinterpret_cast<Stream>(std::uintptr_t{2});

inline constexpr unsigned int kStreamDefault = 0;
inline constexpr unsigned int kStreamNonBlocking = 1;

inline constexpr unsigned int kEventDefault = 0;
inline constexpr unsigned int kEventBlockingSync = 1;
inline constexpr unsigned int kEventDisableTiming = 2;
inline constexpr unsigned int kEventInterprocess = 4;

inline constexpr unsigned int kEventWaitDefault = 0;
inline constexpr unsigned int kEventWaitExternal = 1;

/// What `LaunchHostFunc` runs.
using HostFn = void (*)(void* user_data);

struct DeviceProp {
  char name[256];
  /// Bytes of device memory.
  std::size_t total_global_mem;
  /// Compute units: streaming multiprocessors, clusters, AI cores or processor cores.
  int multi_processor_count;
  /// Lanes that run in lockstep; 1 on the CPU.
  int warp_size;
};

}  // namespace infini::rt::runtime
