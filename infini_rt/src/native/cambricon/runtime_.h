#pragma once

#include <cstddef>

#include <cnrt.h>

#include <infini/rt/device.h>
#include <infini/rt/handles.h>
#include <infini/rt/last_error.h>
#include <infini/rt/runtime.h>
#include <infini/rt/types.h>

namespace infini::rt::runtime {

/// Cambricon CNRT: a queue is a stream, a notifier an event, a task topology a graph. Argument
/// orders, numbers of copy directions and error codes are its own; what CUDA specifies and CNRT
/// leaves open (null handles, size 0, unknown flags) is decided here.
template <>
struct Runtime<Device::Type::kCambricon> {
  static Error SetDevice(int device) { return Code(cnrtSetDevice(device)); }
  static Error GetDevice(int* device) {
    return device == nullptr ? Fail(kErrorInvalidValue) : Code(cnrtGetDevice(device));
  }
  static Error GetDeviceCount(int* count) {
    if (count == nullptr) return Fail(kErrorInvalidValue);
    unsigned int native = 0;
    Error error = Code(cnrtGetDeviceCount(&native));
    *count = static_cast<int>(native);
    return error;
  }
  static Error DeviceSynchronize() { return Code(cnrtSyncDevice()); }

  static Error Malloc(void** ptr, std::size_t size) {
    if (ptr == nullptr) return Fail(kErrorInvalidValue);
    *ptr = nullptr;
    return size == 0 ? kSuccess : Code(cnrtMalloc(ptr, size));
  }
  static Error Free(void* ptr) { return ptr == nullptr ? kSuccess : Code(cnrtFree(ptr)); }
  static Error MallocHost(void** ptr, std::size_t size) {
    if (ptr == nullptr) return Fail(kErrorInvalidValue);
    *ptr = nullptr;
    return size == 0 ? kSuccess : Code(cnrtHostMalloc(ptr, size));
  }
  static Error FreeHost(void* ptr) { return ptr == nullptr ? kSuccess : Code(cnrtFreeHost(ptr)); }
  static Error MemGetInfo(std::size_t* free, std::size_t* total) {
    std::size_t native_free = 0, native_total = 0;
    Error error = Code(cnrtMemGetInfo(&native_free, &native_total));
    if (free != nullptr) *free = native_free;
    if (total != nullptr) *total = native_total;
    return error;
  }
  static Error Memcpy(void* dst, const void* src, std::size_t count, MemcpyKind kind) {
    if (!detail::IsMemcpyKind(kind)) return Fail(kErrorInvalidMemcpyDirection);
    if (count == 0) return kSuccess;
    return Code(cnrtMemcpy(dst, const_cast<void*>(src), count, Native(kind)));
  }
  // Host to host is not among the directions that the asynchronous call accepts; CUDA's is
  // synchronous as well.
  static Error MemcpyAsync(void* dst, const void* src, std::size_t count, MemcpyKind kind,
                           Stream stream) {
    if (!detail::IsMemcpyKind(kind)) return Fail(kErrorInvalidMemcpyDirection);
    if (count == 0) return kSuccess;
    if (kind == kMemcpyHostToHost) {
      Error error = Code(cnrtQueueSync(Native(stream)));
      return error == kSuccess ? Memcpy(dst, src, count, kind) : error;
    }
    return Code(
        cnrtMemcpyAsync_V2(dst, const_cast<void*>(src), count, Native(stream), Native(kind)));
  }
  static Error Memset(void* ptr, int value, std::size_t count) {
    return count == 0 ? kSuccess : Code(cnrtMemset(ptr, value, count));
  }
  static Error MemsetAsync(void* ptr, int value, std::size_t count, Stream stream) {
    return count == 0 ? kSuccess : Code(cnrtMemsetAsync(ptr, value, count, Native(stream)));
  }

  static Error StreamCreate(Stream* stream) {
    if (stream == nullptr) return Fail(kErrorInvalidValue);
    return Code(cnrtQueueCreate(reinterpret_cast<cnrtQueue_t*>(stream)));
  }
  static Error StreamDestroy(Stream stream) {
    if (detail::IsReservedStream(stream)) return Fail(kErrorInvalidResourceHandle);
    return Code(cnrtQueueDestroy(Native(stream)));
  }
  static Error StreamSynchronize(Stream stream) { return Code(cnrtQueueSync(Native(stream))); }
  static Error StreamQuery(Stream stream) { return Code(cnrtQueueQuery(Native(stream))); }
  static Error StreamWaitEvent(Stream stream, Event event, unsigned int flags) {
    if ((flags & ~kEventWaitExternal) != 0) return Fail(kErrorInvalidValue);
    if (event == nullptr) return Fail(kErrorInvalidResourceHandle);
    return Code(cnrtQueueWaitNotifier(Native(event), Native(stream), flags));
  }

  static Error EventCreate(Event* event) { return EventCreateWithFlags(event, kEventDefault); }
  static Error EventCreateWithFlags(Event* event, unsigned int flags) {
    if (event == nullptr || !detail::AreEventFlags(flags)) return Fail(kErrorInvalidValue);
    if ((flags & kEventInterprocess) != 0) return Fail(kErrorNotSupported);
    unsigned int native =
        (flags & kEventDisableTiming) != 0 ? CNRT_NOTIFIER_DISABLE_TIMING : CNRT_NOTIFIER_DEFAULT;
    return Code(cnrtNotifierCreateWithFlags(reinterpret_cast<cnrtNotifier_t*>(event), native));
  }
  static Error EventRecord(Event event, Stream stream) {
    if (event == nullptr) return Fail(kErrorInvalidResourceHandle);
    return Code(cnrtPlaceNotifier(Native(event), Native(stream)));
  }
  static Error EventQuery(Event event) {
    if (event == nullptr) return Fail(kErrorInvalidResourceHandle);
    return Code(cnrtQueryNotifier(Native(event)));
  }
  static Error EventSynchronize(Event event) {
    if (event == nullptr) return Fail(kErrorInvalidResourceHandle);
    return Code(cnrtWaitNotifier(Native(event)));
  }
  static Error EventDestroy(Event event) {
    if (event == nullptr) return Fail(kErrorInvalidResourceHandle);
    return Code(cnrtNotifierDestroy(Native(event)));
  }
  // The hardware's time comes in microseconds. A notifier that was never placed is reported as a
  // driver failure.
  static Error EventElapsedTime(float* ms, Event start, Event end) {
    if (ms == nullptr) return Fail(kErrorInvalidValue);
    if (start == nullptr || end == nullptr) return Fail(kErrorInvalidResourceHandle);
    float microseconds = 0;
    cnrtRet_t error = cnrtNotifierDuration(Native(start), Native(end), &microseconds);
    if (error == cnrtErrorCndrvFuncCall) return Fail(kErrorInvalidResourceHandle);
    *ms = microseconds / 1000;
    return Code(error);
  }

  static Error StreamBeginCapture(Stream stream, StreamCaptureMode mode) {
    if (!detail::IsCaptureMode(mode)) return Fail(kErrorInvalidValue);
    if (detail::IsDefaultStream(stream)) return Fail(kErrorStreamCaptureUnsupported);
    return Code(cnrtQueueBeginCapture(Native(stream), static_cast<cnrtQueueCaptureMode>(mode)));
  }
  static Error StreamEndCapture(Stream stream, Graph* graph) {
    if (graph == nullptr) return Fail(kErrorInvalidValue);
    return Code(cnrtQueueEndCapture(Native(stream), reinterpret_cast<cnrtTaskTopo_t*>(graph)));
  }
  static Error StreamIsCapturing(Stream stream, StreamCaptureStatus* status) {
    if (status == nullptr) return Fail(kErrorInvalidValue);
    return CaptureStatus(cnrtQueueIsCapturing, Native(stream), status);
  }
  static Error GraphInstantiate(GraphExec* graph_exec, Graph graph, unsigned long long flags) {
    if (graph_exec == nullptr || graph == nullptr || flags != 0) return Fail(kErrorInvalidValue);
    auto* native = reinterpret_cast<cnrtTaskTopoEntity_t*>(graph_exec);
    return Code(cnrtTaskTopoInstantiate(native, Native(graph), nullptr, nullptr, 0));
  }
  static Error GraphLaunch(GraphExec graph_exec, Stream stream) {
    if (graph_exec == nullptr) return Fail(kErrorInvalidValue);
    return Code(cnrtTaskTopoEntityInvoke(Native(graph_exec), Native(stream)));
  }
  static Error GraphExecDestroy(GraphExec graph_exec) {
    if (graph_exec == nullptr) return Fail(kErrorInvalidValue);
    return Code(cnrtTaskTopoEntityDestroy(Native(graph_exec)));
  }
  static Error GraphDestroy(Graph graph) {
    if (graph == nullptr) return Fail(kErrorInvalidValue);
    return Code(cnrtTaskTopoDestroy(Native(graph)));
  }

  static Error GetLastError() { return detail::TakeError(kType); }
  static Error PeekAtLastError() { return detail::PeekError(kType); }

 private:
  static constexpr Device::Type kType = Device::Type::kCambricon;

  static Error Fail(Error error) { return detail::RecordError(kType, error); }
  static Error Code(cnrtRet_t error) { return detail::RecordError(kType, Translate(error)); }

  static Error Translate(cnrtRet_t error) {
    switch (error) {
      case cnrtSuccess:
        return kSuccess;
      case cnrtErrorNotReady:
      case cnrtErrorBusy:
        return kErrorNotReady;
      case cnrtErrorNoDevice:
        return kErrorNoDevice;
      case cnrtErrorDeviceInvalid:
        return kErrorInvalidDevice;
      case cnrtErrorArgsInvalid:
        return kErrorInvalidValue;
      case cnrtErrorSysNoMem:
      case cnrtErrorNoMem:
        return kErrorMemoryAllocation;
      case cnrtErrorInvalidResourceHandle:
        return kErrorInvalidResourceHandle;
      case cnrtErrorIllegalState:
        return kErrorIllegalState;
      case cnrtErrorNotSupport:
        return kErrorNotSupported;
      case cnrtErrorOpsNotPermitted:
        return kErrorNotPermitted;
      case cnrtErrorMemcpyDirectionInvalid:
        return kErrorInvalidMemcpyDirection;
      default:
        return TranslateCapture(static_cast<int>(error));
    }
  }

  // Numbers, as the names of these codes are not in every version of the header.
  static Error TranslateCapture(int error) {
    switch (error) {
      case 100360:
        return kErrorStreamCaptureUnsupported;
      case 100361:
        return kErrorStreamCaptureInvalidated;
      case 100362:
        return kErrorStreamCaptureWrongThread;
      case 100363:
        return kErrorStreamCaptureMerge;
      case 100364:
        return kErrorStreamCaptureUnjoined;
      case 100365:
        return kErrorStreamCaptureIsolation;
      case 100366:
        return kErrorStreamCaptureUnmatched;
      default:
        return static_cast<Error>(error);
    }
  }

  // The type of the status is taken from the SDK's function; its numbers are CUDA's.
  template <typename NativeStatus>
  static Error CaptureStatus(cnrtRet_t (*is_capturing)(cnrtQueue_t, NativeStatus*),
                             cnrtQueue_t queue, StreamCaptureStatus* status) {
    NativeStatus native{};
    Error error = Code(is_capturing(queue, &native));
    if (error == kSuccess) *status = static_cast<StreamCaptureStatus>(native);
    return error;
  }

  static cnrtMemTransDir_t Native(MemcpyKind kind) {
    switch (kind) {
      case kMemcpyHostToHost:
        return cnrtMemcpyHostToHost;
      case kMemcpyHostToDevice:
        return cnrtMemcpyHostToDev;
      case kMemcpyDeviceToHost:
        return cnrtMemcpyDevToHost;
      case kMemcpyDeviceToDevice:
        return cnrtMemcpyDevToDev;
      case kMemcpyDefault:
        break;
    }
    return cnrtMemcpyNoDirection;
  }
  static cnrtQueue_t Native(Stream stream) {
    return detail::IsDefaultStream(stream) ? nullptr : reinterpret_cast<cnrtQueue_t>(stream);
  }
  static cnrtNotifier_t Native(Event event) { return reinterpret_cast<cnrtNotifier_t>(event); }
  static cnrtTaskTopo_t Native(Graph graph) { return reinterpret_cast<cnrtTaskTopo_t>(graph); }
  static cnrtTaskTopoEntity_t Native(GraphExec exec) {
    return reinterpret_cast<cnrtTaskTopoEntity_t>(exec);
  }
};

}  // namespace infini::rt::runtime
