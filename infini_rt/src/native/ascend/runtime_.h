#pragma once

#include <cstddef>
#include <cstdint>

#include <acl/acl.h>

#include <infini/rt/ascend/captured_model.h>
#include <infini/rt/device.h>
#include <infini/rt/handles.h>
#include <infini/rt/last_error.h>
#include <infini/rt/runtime.h>
#include <infini/rt/types.h>

namespace infini::rt::runtime {

/// Huawei Ascend ACL. `aclInit` must come before any other call and each thread needs a device, so
/// the first call of the process and of a thread see to that. ACL's captured model is graph and
/// executable in one; here both handles share it by reference, so that the graph may be destroyed
/// first. What CUDA specifies and ACL leaves open is decided here.
template <>
struct Runtime<Device::Type::kAscend> {
  static Error SetDevice(int device) {
    return Run([&] {
      aclError error = aclrtSetDevice(device);
      if (error == ACL_SUCCESS) ThreadHasDevice() = true;
      return error;
    });
  }
  static Error GetDevice(int* device) {
    if (device == nullptr) return Fail(kErrorInvalidValue);
    return Run([&] { return aclrtGetDevice(device); });
  }
  static Error GetDeviceCount(int* count) {
    if (count == nullptr) return Fail(kErrorInvalidValue);
    std::uint32_t native = 0;
    Error error = Run([&] { return aclrtGetDeviceCount(&native); });
    *count = static_cast<int>(native);
    return error;
  }
  static Error DeviceSynchronize() {
    return Run([&] { return aclrtSynchronizeDevice(); });
  }

  static Error Malloc(void** ptr, std::size_t size) {
    if (ptr == nullptr) return Fail(kErrorInvalidValue);
    *ptr = nullptr;
    if (size == 0) return kSuccess;
    return Run([&] { return aclrtMalloc(ptr, size, ACL_MEM_MALLOC_HUGE_FIRST); });
  }
  static Error Free(void* ptr) {
    if (ptr == nullptr) return kSuccess;
    return Run([&] { return aclrtFree(ptr); });
  }
  static Error MallocHost(void** ptr, std::size_t size) {
    if (ptr == nullptr) return Fail(kErrorInvalidValue);
    *ptr = nullptr;
    if (size == 0) return kSuccess;
    return Run([&] { return aclrtMallocHost(ptr, size); });
  }
  static Error FreeHost(void* ptr) {
    if (ptr == nullptr) return kSuccess;
    return Run([&] { return aclrtFreeHost(ptr); });
  }
  static Error MemGetInfo(std::size_t* free, std::size_t* total) {
    std::size_t native_free = 0, native_total = 0;
    Error error = Run([&] { return aclrtGetMemInfo(ACL_HBM_MEM, &native_free, &native_total); });
    if (free != nullptr) *free = native_free;
    if (total != nullptr) *total = native_total;
    return error;
  }
  static Error Memcpy(void* dst, const void* src, std::size_t count, MemcpyKind kind) {
    Error error = CheckKind(kind);
    if (error != kSuccess || count == 0) return error;
    return Run([&] { return aclrtMemcpy(dst, count, src, count, Native(kind)); });
  }
  static Error MemcpyAsync(void* dst, const void* src, std::size_t count, MemcpyKind kind,
                           Stream stream) {
    Error error = CheckKind(kind);
    if (error != kSuccess || count == 0) return error;
    return Run(
        [&] { return aclrtMemcpyAsync(dst, count, src, count, Native(kind), Native(stream)); });
  }
  static Error Memset(void* ptr, int value, std::size_t count) {
    if (count == 0) return kSuccess;
    return Run([&] { return aclrtMemset(ptr, count, value & 0xff, count); });
  }
  static Error MemsetAsync(void* ptr, int value, std::size_t count, Stream stream) {
    if (count == 0) return kSuccess;
    return Run([&] { return aclrtMemsetAsync(ptr, count, value & 0xff, count, Native(stream)); });
  }

  static Error StreamCreate(Stream* stream) {
    if (stream == nullptr) return Fail(kErrorInvalidValue);
    return Run([&] { return aclrtCreateStream(reinterpret_cast<aclrtStream*>(stream)); });
  }
  // ACL destroys only streams without work and outside captures; CUDA lets a capture end with its
  // stream and promises that work completes.
  static Error StreamDestroy(Stream stream) {
    if (detail::IsReservedStream(stream)) return Fail(kErrorInvalidResourceHandle);
    return Run([&] {
      ascend::AbandonCapture(Native(stream));
      aclrtSynchronizeStream(Native(stream));
      return aclrtDestroyStream(Native(stream));
    });
  }
  static Error StreamSynchronize(Stream stream) {
    return Run([&] { return aclrtSynchronizeStream(Native(stream)); });
  }
  static Error StreamWaitEvent(Stream stream, Event event, unsigned int flags) {
    if ((flags & ~kEventWaitExternal) != 0) return Fail(kErrorInvalidValue);
    if (event == nullptr) return Fail(kErrorInvalidResourceHandle);
    if (flags != 0) {
      // Outside a capture the flag is a mistake, inside one ACL has nothing like it.
      StreamCaptureStatus status = kStreamCaptureStatusNone;
      bool capturing = StreamIsCapturing(stream, &status) == kSuccess && status != 0;
      return Fail(capturing ? kErrorNotSupported : kErrorIllegalState);
    }
    return Run([&] { return aclrtStreamWaitEvent(Native(stream), Native(event)); });
  }

  static Error EventCreate(Event* event) { return EventCreateWithFlags(event, kEventDefault); }
  static Error EventCreateWithFlags(Event* event, unsigned int flags) {
    if (event == nullptr || !detail::AreEventFlags(flags)) return Fail(kErrorInvalidValue);
    if ((flags & kEventInterprocess) != 0) return Fail(kErrorNotSupported);
    std::uint32_t native = ACL_EVENT_SYNC;
    if ((flags & kEventDisableTiming) == 0) native |= ACL_EVENT_TIME_LINE;
    return Run(
        [&] { return aclrtCreateEventExWithFlag(reinterpret_cast<aclrtEvent*>(event), native); });
  }
  static Error EventRecord(Event event, Stream stream) {
    if (event == nullptr) return Fail(kErrorInvalidResourceHandle);
    return Run([&] { return aclrtRecordEvent(Native(event), Native(stream)); });
  }
  static Error EventQuery(Event event) {
    if (event == nullptr) return Fail(kErrorInvalidResourceHandle);
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    Error error = Run([&] { return aclrtQueryEventStatus(Native(event), &status); });
    if (error != kSuccess) return error;
    return status == ACL_EVENT_RECORDED_STATUS_COMPLETE ? kSuccess : kErrorNotReady;
  }
  static Error EventSynchronize(Event event) {
    if (event == nullptr) return Fail(kErrorInvalidResourceHandle);
    return Run([&] { return aclrtSynchronizeEvent(Native(event)); });
  }
  static Error EventDestroy(Event event) {
    if (event == nullptr) return Fail(kErrorInvalidResourceHandle);
    return Run([&] { return aclrtDestroyEvent(Native(event)); });
  }
  static Error EventElapsedTime(float* ms, Event start, Event end) {
    if (ms == nullptr) return Fail(kErrorInvalidValue);
    if (start == nullptr || end == nullptr) return Fail(kErrorInvalidResourceHandle);
    return Run([&] { return aclrtEventElapsedTime(ms, Native(start), Native(end)); });
  }

  static Error StreamBeginCapture(Stream stream, StreamCaptureMode mode) {
    if (!detail::IsCaptureMode(mode)) return Fail(kErrorInvalidValue);
    if (detail::IsDefaultStream(stream)) return Fail(kErrorStreamCaptureUnsupported);
    const auto& capture = ascend::CaptureFunctions::Get();
    if (!capture.available()) return Fail(kErrorNotSupported);
    return Run([&] { return capture.begin(Native(stream), static_cast<int>(mode)); });
  }
  static Error StreamEndCapture(Stream stream, Graph* graph) {
    if (graph == nullptr) return Fail(kErrorInvalidValue);
    *graph = nullptr;
    const auto& capture = ascend::CaptureFunctions::Get();
    if (!capture.available()) return Fail(kErrorNotSupported);
    void* model = nullptr;
    int status = 0;
    bool asked = capture.get_info(Native(stream), &status, &model) == 0;
    Error error = Run([&] { return capture.end(Native(stream), &model); });
    if (error != kSuccess && asked && status == kStreamCaptureStatusInvalidated) {
      return Fail(kErrorStreamCaptureInvalidated);
    }
    if (error == kSuccess) {
      *graph = reinterpret_cast<Graph>(new ascend::CapturedModel(model));
    }
    return error;
  }
  static Error StreamIsCapturing(Stream stream, StreamCaptureStatus* status) {
    if (status == nullptr) return Fail(kErrorInvalidValue);
    const auto& capture = ascend::CaptureFunctions::Get();
    if (!capture.available()) return Fail(kErrorNotSupported);
    int native = 0;
    void* model = nullptr;
    Error error = Run([&] { return capture.get_info(Native(stream), &native, &model); });
    if (error == kSuccess) *status = static_cast<StreamCaptureStatus>(native);
    return error;
  }
  static Error GraphInstantiate(GraphExec* graph_exec, Graph graph, unsigned long long flags) {
    if (graph_exec == nullptr || graph == nullptr || flags != 0) return Fail(kErrorInvalidValue);
    auto* model = reinterpret_cast<ascend::CapturedModel*>(graph);
    model->Ref();
    *graph_exec = reinterpret_cast<GraphExec>(model);
    return kSuccess;
  }
  static Error GraphLaunch(GraphExec graph_exec, Stream stream) {
    if (graph_exec == nullptr) return Fail(kErrorInvalidValue);
    void* model = reinterpret_cast<ascend::CapturedModel*>(graph_exec)->native();
    return Run([&] { return ascend::CaptureFunctions::Get().execute(model, Native(stream)); });
  }
  static Error GraphExecDestroy(GraphExec graph_exec) {
    if (graph_exec == nullptr) return Fail(kErrorInvalidValue);
    return Run([&] { return reinterpret_cast<ascend::CapturedModel*>(graph_exec)->Unref(); });
  }
  static Error GraphDestroy(Graph graph) {
    if (graph == nullptr) return Fail(kErrorInvalidValue);
    return Run([&] { return reinterpret_cast<ascend::CapturedModel*>(graph)->Unref(); });
  }

  static Error GetLastError() { return detail::TakeError(kType); }
  static Error PeekAtLastError() { return detail::PeekError(kType); }

 private:
  static constexpr Device::Type kType = Device::Type::kAscend;
  static constexpr aclError kAlreadyInitialized = 100002;

  static Error Fail(Error error) { return detail::RecordError(kType, error); }

  static bool& ThreadHasDevice() {
    static thread_local bool has_device = false;
    return has_device;
  }

  // Starts ACL once, gives the thread device 0 if it has none, then calls.
  static aclError Initialized() {
    static const aclError initialized = aclInit(nullptr);
    return initialized == kAlreadyInitialized ? ACL_SUCCESS : initialized;
  }

  template <typename Call>
  static Error Run(Call call) {
    aclError error = Initialized();
    if (error == ACL_SUCCESS && !ThreadHasDevice()) {
      error = aclrtSetDevice(0);
      ThreadHasDevice() = error == ACL_SUCCESS;
    }
    if (error == ACL_SUCCESS) error = call();
    return detail::RecordError(kType, Translate(error));
  }

  static Error CheckKind(MemcpyKind kind) {
    if (!detail::IsMemcpyKind(kind)) return Fail(kErrorInvalidMemcpyDirection);
    return kind == kMemcpyDefault ? Fail(kErrorNotSupported) : kSuccess;
  }

  // Numbers, as the names of these codes are not in every version of the header.
  static Error Translate(aclError error) {
    switch (error) {
      case 0:
        return kSuccess;
      case 100000:
      case 107000:
        return kErrorInvalidValue;
      case 100001:
        return kErrorInitializationError;
      case 107001:
        return kErrorInvalidDevice;
      case 107017:
        return kErrorInvalidResourceHandle;
      case 107024:
        return kErrorStreamCaptureIsolation;
      case 107025:
        return kErrorStreamCaptureUnjoined;
      case 107027:
      case 107029:
        return kErrorIllegalState;
      case 107028:
        return kErrorCapturedEvent;
      case 107030:
        return kErrorStreamCaptureUnsupported;
      case 107031:
        return kErrorStreamCaptureImplicit;
      case 107032:
        return kErrorStreamCaptureMerge;
      case 107036:
        return kErrorStreamCaptureUnmatched;
      case 107038:
        return kErrorStreamCaptureWrongThread;
      case 207000:
        return kErrorNotSupported;
      case 207001:
        return kErrorMemoryAllocation;
      case 207004:
        return kErrorNoDevice;
      case 207006:
        return kErrorNotPermitted;
      default:
        return static_cast<Error>(error);
    }
  }

  static aclrtMemcpyKind Native(MemcpyKind kind) {
    switch (kind) {
      case kMemcpyHostToDevice:
        return ACL_MEMCPY_HOST_TO_DEVICE;
      case kMemcpyDeviceToHost:
        return ACL_MEMCPY_DEVICE_TO_HOST;
      case kMemcpyDeviceToDevice:
        return ACL_MEMCPY_DEVICE_TO_DEVICE;
      default:
        return ACL_MEMCPY_HOST_TO_HOST;
    }
  }
  static aclrtStream Native(Stream stream) {
    return detail::IsDefaultStream(stream) ? nullptr : static_cast<aclrtStream>(stream);
  }
  static aclrtEvent Native(Event event) { return static_cast<aclrtEvent>(event); }
};

}  // namespace infini::rt::runtime
