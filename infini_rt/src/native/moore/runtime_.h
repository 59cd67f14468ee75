#pragma once

#include <cstddef>
#include <cstring>

#include <musa_runtime.h>

#include <infini/rt/device.h>
#include <infini/rt/handles.h>
#include <infini/rt/last_error.h>
#include <infini/rt/runtime.h>
#include <infini/rt/types.h>

namespace infini::rt::runtime {

/// Moore Threads: MUSA's names are CUDA's with the prefix musa, its error numbers are CUDA's. The
/// SDK has no stream-ordered memory that can be relied on, and its graph instantiation takes three
/// or five arguments depending on its version.
template <>
struct Runtime<Device::Type::kMoore> {
  static Error SetDevice(int device) { return Code(musaSetDevice(device)); }
  static Error GetDevice(int* device) { return Code(musaGetDevice(device)); }
  static Error GetDeviceCount(int* count) { return Code(musaGetDeviceCount(count)); }
  static Error DeviceSynchronize() { return Code(musaDeviceSynchronize()); }
  static Error GetDeviceProperties(DeviceProp* prop, int device) {
    musaDeviceProp native;
    musaError_t error = musaGetDeviceProperties(prop != nullptr ? &native : nullptr, device);
    if (error != musaSuccess) return Code(error);
    if (prop == nullptr) return kErrorInvalidValue;
    *prop = {};
    std::strncpy(prop->name, native.name, sizeof(prop->name) - 1);
    prop->total_global_mem = native.totalGlobalMem;
    prop->multi_processor_count = native.multiProcessorCount;
    prop->warp_size = native.warpSize;
    return kSuccess;
  }
  static Error DeviceGetStreamPriorityRange(int* least_priority, int* greatest_priority) {
    return Code(musaDeviceGetStreamPriorityRange(least_priority, greatest_priority));
  }

  static Error Malloc(void** ptr, std::size_t size) { return Code(musaMalloc(ptr, size)); }
  static Error Free(void* ptr) { return Code(musaFree(ptr)); }
  static Error MallocHost(void** ptr, std::size_t size) { return Code(musaMallocHost(ptr, size)); }
  static Error FreeHost(void* ptr) { return Code(musaFreeHost(ptr)); }
  static Error MemGetInfo(std::size_t* free, std::size_t* total) {
    return Code(musaMemGetInfo(free, total));
  }
  static Error Memcpy(void* dst, const void* src, std::size_t count, MemcpyKind kind) {
    return Code(musaMemcpy(dst, src, count, Native(kind)));
  }
  static Error MemcpyAsync(void* dst, const void* src, std::size_t count, MemcpyKind kind,
                           Stream stream) {
    return Code(musaMemcpyAsync(dst, src, count, Native(kind), Native(stream)));
  }
  static Error Memset(void* ptr, int value, std::size_t count) {
    return Code(musaMemset(ptr, value, count));
  }
  static Error MemsetAsync(void* ptr, int value, std::size_t count, Stream stream) {
    return Code(musaMemsetAsync(ptr, value, count, Native(stream)));
  }
  static Error MemcpyPeer(void* dst, int dst_device, const void* src, int src_device,
                          std::size_t count) {
    return Code(musaMemcpyPeer(dst, dst_device, src, src_device, count));
  }
  static Error MemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                               std::size_t count, Stream stream) {
    return Code(musaMemcpyPeerAsync(dst, dst_device, src, src_device, count, Native(stream)));
  }

  static Error StreamCreate(Stream* stream) {
    return Code(musaStreamCreate(reinterpret_cast<musaStream_t*>(stream)));
  }
  static Error StreamCreateWithFlags(Stream* stream, unsigned int flags) {
    return Code(musaStreamCreateWithFlags(reinterpret_cast<musaStream_t*>(stream), flags));
  }
  static Error StreamCreateWithPriority(Stream* stream, unsigned int flags, int priority) {
    return Code(
        musaStreamCreateWithPriority(reinterpret_cast<musaStream_t*>(stream), flags, priority));
  }
  static Error StreamDestroy(Stream stream) {
    if (detail::IsReservedStream(stream)) {
      return detail::RecordError(kType, kErrorInvalidResourceHandle);
    }
    return Code(musaStreamDestroy(Native(stream)));
  }
  static Error StreamSynchronize(Stream stream) {
    return Code(musaStreamSynchronize(Native(stream)));
  }
  static Error StreamQuery(Stream stream) { return Code(musaStreamQuery(Native(stream))); }
  static Error StreamWaitEvent(Stream stream, Event event, unsigned int flags) {
    return Code(musaStreamWaitEvent(Native(stream), Native(event), flags));
  }
  static Error LaunchHostFunc(Stream stream, HostFn fn, void* user_data) {
    return Code(musaLaunchHostFunc(Native(stream), fn, user_data));
  }

  static Error EventCreate(Event* event) {
    return Code(musaEventCreate(reinterpret_cast<musaEvent_t*>(event)));
  }
  static Error EventCreateWithFlags(Event* event, unsigned int flags) {
    return Code(musaEventCreateWithFlags(reinterpret_cast<musaEvent_t*>(event), flags));
  }
  static Error EventRecord(Event event, Stream stream) {
    return Code(musaEventRecord(Native(event), Native(stream)));
  }
  static Error EventQuery(Event event) { return Code(musaEventQuery(Native(event))); }
  static Error EventSynchronize(Event event) { return Code(musaEventSynchronize(Native(event))); }
  static Error EventDestroy(Event event) { return Code(musaEventDestroy(Native(event))); }
  static Error EventElapsedTime(float* ms, Event start, Event end) {
    return Code(musaEventElapsedTime(ms, Native(start), Native(end)));
  }

  static Error StreamBeginCapture(Stream stream, StreamCaptureMode mode) {
    return Code(musaStreamBeginCapture(Native(stream), static_cast<musaStreamCaptureMode>(mode)));
  }
  static Error StreamEndCapture(Stream stream, Graph* graph) {
    return Code(musaStreamEndCapture(Native(stream), reinterpret_cast<musaGraph_t*>(graph)));
  }
  static Error StreamIsCapturing(Stream stream, StreamCaptureStatus* status) {
    return Code(
        musaStreamIsCapturing(Native(stream), reinterpret_cast<musaStreamCaptureStatus*>(status)));
  }
  static Error GraphInstantiate(GraphExec* graph_exec, Graph graph, unsigned long long flags) {
    if (graph_exec == nullptr || graph == nullptr || flags != 0) {
      return detail::RecordError(kType, kErrorInvalidValue);
    }
    return Code(Instantiate(reinterpret_cast<musaGraphExec_t*>(graph_exec), Native(graph)));
  }
  static Error GraphLaunch(GraphExec graph_exec, Stream stream) {
    return Code(musaGraphLaunch(Native(graph_exec), Native(stream)));
  }
  static Error GraphExecDestroy(GraphExec graph_exec) {
    return Code(musaGraphExecDestroy(Native(graph_exec)));
  }
  static Error GraphDestroy(Graph graph) { return Code(musaGraphDestroy(Native(graph))); }

  static Error GetLastError() {
    Error own = detail::TakeError(kType);
    Error native = Code(musaGetLastError());
    return native != kSuccess ? native : own;
  }
  static Error PeekAtLastError() {
    Error native = Code(musaPeekAtLastError());
    return native != kSuccess ? native : detail::PeekError(kType);
  }

 private:
  static constexpr Device::Type kType = Device::Type::kMoore;

  // The SDK keeps the last error of its own failures.
  static Error Code(musaError_t error) { return static_cast<Error>(error); }

  static musaMemcpyKind Native(MemcpyKind kind) {
    switch (kind) {
      case kMemcpyHostToHost:
        return musaMemcpyHostToHost;
      case kMemcpyHostToDevice:
        return musaMemcpyHostToDevice;
      case kMemcpyDeviceToHost:
        return musaMemcpyDeviceToHost;
      case kMemcpyDeviceToDevice:
        return musaMemcpyDeviceToDevice;
      case kMemcpyDefault:
        return musaMemcpyDefault;
    }
    return static_cast<musaMemcpyKind>(kind);  // the SDK refuses it
  }
  static musaStream_t Native(Stream stream) {
    return detail::IsDefaultStream(stream) ? nullptr : reinterpret_cast<musaStream_t>(stream);
  }
  static musaEvent_t Native(Event event) { return reinterpret_cast<musaEvent_t>(event); }
  static musaGraph_t Native(Graph graph) { return reinterpret_cast<musaGraph_t>(graph); }
  static musaGraphExec_t Native(GraphExec exec) { return reinterpret_cast<musaGraphExec_t>(exec); }
  template <typename NativeExec, typename NativeGraph>
  static musaError_t Instantiate(NativeExec* exec, NativeGraph graph) {
    if constexpr (requires { musaGraphInstantiate(exec, graph, nullptr, nullptr, 0); }) {
      return musaGraphInstantiate(exec, graph, nullptr, nullptr, 0);
    } else {
      return musaGraphInstantiate(exec, graph, 0);
    }
  }
};

}  // namespace infini::rt::runtime
