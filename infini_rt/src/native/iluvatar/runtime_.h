#pragma once

#include <cstddef>
#include <cstring>

#include <cuda_runtime.h>

#include <infini/rt/device.h>
#include <infini/rt/handles.h>
#include <infini/rt/last_error.h>
#include <infini/rt/runtime.h>
#include <infini/rt/types.h>

namespace infini::rt::runtime {

/// Iluvatar CoreX: the SDK has CUDA's own names and numbers; graph instantiation takes CUDA 11's
/// five arguments, and there are no pool attributes.
template <>
struct Runtime<Device::Type::kIluvatar> {
  static Error SetDevice(int device) { return Code(cudaSetDevice(device)); }
  static Error GetDevice(int* device) { return Code(cudaGetDevice(device)); }
  static Error GetDeviceCount(int* count) { return Code(cudaGetDeviceCount(count)); }
  static Error DeviceSynchronize() { return Code(cudaDeviceSynchronize()); }
  static Error GetDeviceProperties(DeviceProp* prop, int device) {
    cudaDeviceProp native;
    cudaError_t error = cudaGetDeviceProperties(prop != nullptr ? &native : nullptr, device);
    if (error != cudaSuccess) return Code(error);
    if (prop == nullptr) return kErrorInvalidValue;
    *prop = {};
    std::strncpy(prop->name, native.name, sizeof(prop->name) - 1);
    prop->total_global_mem = native.totalGlobalMem;
    prop->multi_processor_count = native.multiProcessorCount;
    prop->warp_size = native.warpSize;
    return kSuccess;
  }
  static Error DeviceGetStreamPriorityRange(int* least_priority, int* greatest_priority) {
    return Code(cudaDeviceGetStreamPriorityRange(least_priority, greatest_priority));
  }

  static Error Malloc(void** ptr, std::size_t size) { return Code(cudaMalloc(ptr, size)); }
  static Error Free(void* ptr) { return Code(cudaFree(ptr)); }
  static Error MallocHost(void** ptr, std::size_t size) { return Code(cudaMallocHost(ptr, size)); }
  static Error FreeHost(void* ptr) { return Code(cudaFreeHost(ptr)); }
  static Error MemGetInfo(std::size_t* free, std::size_t* total) {
    return Code(cudaMemGetInfo(free, total));
  }
  static Error Memcpy(void* dst, const void* src, std::size_t count, MemcpyKind kind) {
    return Code(cudaMemcpy(dst, src, count, Native(kind)));
  }
  static Error MemcpyAsync(void* dst, const void* src, std::size_t count, MemcpyKind kind,
                           Stream stream) {
    return Code(cudaMemcpyAsync(dst, src, count, Native(kind), Native(stream)));
  }
  static Error Memset(void* ptr, int value, std::size_t count) {
    return Code(cudaMemset(ptr, value, count));
  }
  static Error MemsetAsync(void* ptr, int value, std::size_t count, Stream stream) {
    return Code(cudaMemsetAsync(ptr, value, count, Native(stream)));
  }
  static Error MemcpyPeer(void* dst, int dst_device, const void* src, int src_device,
                          std::size_t count) {
    return Code(cudaMemcpyPeer(dst, dst_device, src, src_device, count));
  }
  static Error MemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                               std::size_t count, Stream stream) {
    return Code(cudaMemcpyPeerAsync(dst, dst_device, src, src_device, count, Native(stream)));
  }

  static Error MallocAsync(void** ptr, std::size_t size, Stream stream) {
    return Code(cudaMallocAsync(ptr, size, Native(stream)));
  }
  static Error FreeAsync(void* ptr, Stream stream) {
    return Code(cudaFreeAsync(ptr, Native(stream)));
  }
  static Error StreamCreate(Stream* stream) {
    return Code(cudaStreamCreate(reinterpret_cast<cudaStream_t*>(stream)));
  }
  static Error StreamCreateWithFlags(Stream* stream, unsigned int flags) {
    return Code(cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(stream), flags));
  }
  static Error StreamCreateWithPriority(Stream* stream, unsigned int flags, int priority) {
    return Code(
        cudaStreamCreateWithPriority(reinterpret_cast<cudaStream_t*>(stream), flags, priority));
  }
  static Error StreamDestroy(Stream stream) { return Code(cudaStreamDestroy(Native(stream))); }
  static Error StreamSynchronize(Stream stream) {
    return Code(cudaStreamSynchronize(Native(stream)));
  }
  static Error StreamQuery(Stream stream) { return Code(cudaStreamQuery(Native(stream))); }
  static Error StreamWaitEvent(Stream stream, Event event, unsigned int flags) {
    return Code(cudaStreamWaitEvent(Native(stream), Native(event), flags));
  }
  static Error LaunchHostFunc(Stream stream, HostFn fn, void* user_data) {
    return Code(cudaLaunchHostFunc(Native(stream), fn, user_data));
  }

  static Error EventCreate(Event* event) {
    return Code(cudaEventCreate(reinterpret_cast<cudaEvent_t*>(event)));
  }
  static Error EventCreateWithFlags(Event* event, unsigned int flags) {
    return Code(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), flags));
  }
  static Error EventRecord(Event event, Stream stream) {
    return Code(cudaEventRecord(Native(event), Native(stream)));
  }
  static Error EventQuery(Event event) { return Code(cudaEventQuery(Native(event))); }
  static Error EventSynchronize(Event event) { return Code(cudaEventSynchronize(Native(event))); }
  static Error EventDestroy(Event event) { return Code(cudaEventDestroy(Native(event))); }
  static Error EventElapsedTime(float* ms, Event start, Event end) {
    return Code(cudaEventElapsedTime(ms, Native(start), Native(end)));
  }

  static Error StreamBeginCapture(Stream stream, StreamCaptureMode mode) {
    return Code(cudaStreamBeginCapture(Native(stream), static_cast<cudaStreamCaptureMode>(mode)));
  }
  static Error StreamEndCapture(Stream stream, Graph* graph) {
    return Code(cudaStreamEndCapture(Native(stream), reinterpret_cast<cudaGraph_t*>(graph)));
  }
  static Error StreamIsCapturing(Stream stream, StreamCaptureStatus* status) {
    return Code(
        cudaStreamIsCapturing(Native(stream), reinterpret_cast<cudaStreamCaptureStatus*>(status)));
  }
  static Error GraphInstantiate(GraphExec* graph_exec, Graph graph, unsigned long long flags) {
    if (graph_exec == nullptr || graph == nullptr || flags != 0) {
      return detail::RecordError(kType, kErrorInvalidValue);
    }
    auto* native = reinterpret_cast<cudaGraphExec_t*>(graph_exec);
    return Code(cudaGraphInstantiate(native, Native(graph), nullptr, nullptr, 0));
  }
  static Error GraphLaunch(GraphExec graph_exec, Stream stream) {
    return Code(cudaGraphLaunch(Native(graph_exec), Native(stream)));
  }
  static Error GraphExecDestroy(GraphExec graph_exec) {
    return Code(cudaGraphExecDestroy(Native(graph_exec)));
  }
  static Error GraphDestroy(Graph graph) { return Code(cudaGraphDestroy(Native(graph))); }

  static Error GetLastError() {
    Error own = detail::TakeError(kType);
    Error native = Code(cudaGetLastError());
    return native != kSuccess ? native : own;
  }
  static Error PeekAtLastError() {
    Error native = Code(cudaPeekAtLastError());
    return native != kSuccess ? native : detail::PeekError(kType);
  }

 private:
  static constexpr Device::Type kType = Device::Type::kIluvatar;

  // The SDK keeps the last error of its own failures.
  static Error Code(cudaError_t error) { return static_cast<Error>(error); }

  static cudaMemcpyKind Native(MemcpyKind kind) {
    switch (kind) {
      case kMemcpyHostToHost:
        return cudaMemcpyHostToHost;
      case kMemcpyHostToDevice:
        return cudaMemcpyHostToDevice;
      case kMemcpyDeviceToHost:
        return cudaMemcpyDeviceToHost;
      case kMemcpyDeviceToDevice:
        return cudaMemcpyDeviceToDevice;
      case kMemcpyDefault:
        return cudaMemcpyDefault;
    }
    return static_cast<cudaMemcpyKind>(kind);  // the SDK refuses it
  }
  static cudaStream_t Native(Stream stream) { return reinterpret_cast<cudaStream_t>(stream); }
  static cudaEvent_t Native(Event event) { return reinterpret_cast<cudaEvent_t>(event); }
  static cudaGraph_t Native(Graph graph) { return reinterpret_cast<cudaGraph_t>(graph); }
  static cudaGraphExec_t Native(GraphExec exec) { return reinterpret_cast<cudaGraphExec_t>(exec); }
};

}  // namespace infini::rt::runtime
