#pragma once

#include <cstddef>
#include <cstring>

#include <mcr/mc_runtime.h>

#include <infini/rt/device.h>
#include <infini/rt/handles.h>
#include <infini/rt/last_error.h>
#include <infini/rt/runtime.h>
#include <infini/rt/types.h>

namespace infini::rt::runtime {

/// MetaX: MACA's names are CUDA's with the prefix mc. `mcInit` must come before any other call, so
/// the first call makes it. Error codes are translated by name where the name is known.
template <>
struct Runtime<Device::Type::kMetax> {
  static Error SetDevice(int device) {
    return Run([&] { return mcSetDevice(device); });
  }
  static Error GetDevice(int* device) {
    return Run([&] { return mcGetDevice(device); });
  }
  static Error GetDeviceCount(int* count) {
    return Run([&] { return mcGetDeviceCount(count); });
  }
  static Error DeviceSynchronize() {
    return Run([&] { return mcDeviceSynchronize(); });
  }
  static Error GetDeviceProperties(DeviceProp* prop, int device) {
    if (prop == nullptr) return detail::RecordError(kType, kErrorInvalidValue);
    *prop = {};
    mcDeviceProp_t native;
    int units = 0;
    Error error = Run([&] { return mcGetDeviceProperties(&native, device); });
    if (error != kSuccess) return error;
    error = Run(
        [&] { return mcDeviceGetAttribute(&units, mcDeviceAttributeMultiProcessorCount, device); });
    if (error != kSuccess) return error;
    prop->total_global_mem = native.totalGlobalMem;
    prop->multi_processor_count = units;
    prop->warp_size = native.warpSize;
    return Run([&] { return mcDeviceGetName(prop->name, sizeof(prop->name), device); });
  }
  static Error DeviceGetStreamPriorityRange(int* least_priority, int* greatest_priority) {
    return Run([&] { return mcDeviceGetStreamPriorityRange(least_priority, greatest_priority); });
  }

  static Error Malloc(void** ptr, std::size_t size) {
    return Run([&] { return mcMalloc(ptr, size); });
  }
  static Error Free(void* ptr) {
    return Run([&] { return mcFree(ptr); });
  }
  static Error MallocHost(void** ptr, std::size_t size) {
    return Run([&] { return mcMallocHost(ptr, size); });
  }
  static Error FreeHost(void* ptr) {
    return Run([&] { return mcFreeHost(ptr); });
  }
  static Error MemGetInfo(std::size_t* free, std::size_t* total) {
    return Run([&] { return mcMemGetInfo(free, total); });
  }
  static Error Memcpy(void* dst, const void* src, std::size_t count, MemcpyKind kind) {
    return Run([&] { return mcMemcpy(dst, src, count, Native(kind)); });
  }
  static Error MemcpyAsync(void* dst, const void* src, std::size_t count, MemcpyKind kind,
                           Stream stream) {
    return Run([&] { return mcMemcpyAsync(dst, src, count, Native(kind), Native(stream)); });
  }
  static Error Memset(void* ptr, int value, std::size_t count) {
    return Run([&] { return mcMemset(ptr, value, count); });
  }
  static Error MemsetAsync(void* ptr, int value, std::size_t count, Stream stream) {
    return Run([&] { return mcMemsetAsync(ptr, value, count, Native(stream)); });
  }
  // The SDK has the asynchronous form only; in the default stream it is the synchronous one.
  static Error MemcpyPeer(void* dst, int dst_device, const void* src, int src_device,
                          std::size_t count) {
    return MemcpyPeerAsync(dst, dst_device, src, src_device, count, nullptr);
  }
  static Error MemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                               std::size_t count, Stream stream) {
    return Run(
        [&] { return mcMemcpyPeerAsync(dst, dst_device, src, src_device, count, Native(stream)); });
  }

  static Error MallocAsync(void** ptr, std::size_t size, Stream stream) {
    return Run([&] { return mcMallocAsync(ptr, size, Native(stream)); });
  }
  static Error FreeAsync(void* ptr, Stream stream) {
    return Run([&] { return mcFreeAsync(ptr, Native(stream)); });
  }
  static Error DeviceGetDefaultMemPool(MemPool* pool, int device) {
    return Run(
        [&] { return mcDeviceGetDefaultMemPool(reinterpret_cast<mcMemPool_t*>(pool), device); });
  }
  static Error MemPoolGetAttribute(MemPool pool, MemPoolAttr attr, void* value) {
    return Run([&] { return mcMemPoolGetAttribute(Native(pool), Native(attr), value); });
  }
  static Error MemPoolSetAttribute(MemPool pool, MemPoolAttr attr, void* value) {
    return Run([&] { return mcMemPoolSetAttribute(Native(pool), Native(attr), value); });
  }
  static Error StreamCreate(Stream* stream) {
    return Run([&] { return mcStreamCreate(reinterpret_cast<mcStream_t*>(stream)); });
  }
  static Error StreamCreateWithFlags(Stream* stream, unsigned int flags) {
    return Run(
        [&] { return mcStreamCreateWithFlags(reinterpret_cast<mcStream_t*>(stream), flags); });
  }
  static Error StreamCreateWithPriority(Stream* stream, unsigned int flags, int priority) {
    return Run([&] {
      return mcStreamCreateWithPriority(reinterpret_cast<mcStream_t*>(stream), flags, priority);
    });
  }
  static Error StreamDestroy(Stream stream) {
    if (detail::IsReservedStream(stream)) {
      return detail::RecordError(kType, kErrorInvalidResourceHandle);
    }
    return Run([&] { return mcStreamDestroy(Native(stream)); });
  }
  static Error StreamSynchronize(Stream stream) {
    return Run([&] { return mcStreamSynchronize(Native(stream)); });
  }
  static Error StreamQuery(Stream stream) {
    return Run([&] { return mcStreamQuery(Native(stream)); });
  }
  static Error StreamWaitEvent(Stream stream, Event event, unsigned int flags) {
    return Run([&] { return mcStreamWaitEvent(Native(stream), Native(event), flags); });
  }
  static Error EventCreate(Event* event) {
    return Run([&] { return mcEventCreate(reinterpret_cast<mcEvent_t*>(event)); });
  }
  static Error EventCreateWithFlags(Event* event, unsigned int flags) {
    return Run([&] { return mcEventCreateWithFlags(reinterpret_cast<mcEvent_t*>(event), flags); });
  }
  static Error EventRecord(Event event, Stream stream) {
    return Run([&] { return mcEventRecord(Native(event), Native(stream)); });
  }
  static Error EventQuery(Event event) {
    return Run([&] { return mcEventQuery(Native(event)); });
  }
  static Error EventSynchronize(Event event) {
    return Run([&] { return mcEventSynchronize(Native(event)); });
  }
  static Error EventDestroy(Event event) {
    return Run([&] { return mcEventDestroy(Native(event)); });
  }
  static Error EventElapsedTime(float* ms, Event start, Event end) {
    return Run([&] { return mcEventElapsedTime(ms, Native(start), Native(end)); });
  }

  static Error StreamBeginCapture(Stream stream, StreamCaptureMode mode) {
    return Run([&] {
      return mcStreamBeginCapture(Native(stream), static_cast<mcStreamCaptureMode>(mode));
    });
  }
  static Error StreamEndCapture(Stream stream, Graph* graph) {
    return Run(
        [&] { return mcStreamEndCapture(Native(stream), reinterpret_cast<mcGraph_t*>(graph)); });
  }
  static Error GraphInstantiate(GraphExec* graph_exec, Graph graph, unsigned long long flags) {
    if (graph_exec == nullptr || graph == nullptr || flags != 0) {
      return detail::RecordError(kType, kErrorInvalidValue);
    }
    auto* native = reinterpret_cast<mcGraphExec_t*>(graph_exec);
    return Run([&] { return mcGraphInstantiate(native, Native(graph), nullptr, nullptr, 0); });
  }
  static Error GraphLaunch(GraphExec graph_exec, Stream stream) {
    return Run([&] { return mcGraphLaunch(Native(graph_exec), Native(stream)); });
  }
  static Error GraphExecDestroy(GraphExec graph_exec) {
    return Run([&] { return mcGraphExecDestroy(Native(graph_exec)); });
  }
  static Error GraphDestroy(Graph graph) {
    return Run([&] { return mcGraphDestroy(Native(graph)); });
  }

  static Error GetLastError() {
    Error own = detail::TakeError(kType);
    Error native = Translate(mcGetLastError());
    return own != kSuccess ? own : native;
  }
  static Error PeekAtLastError() { return detail::PeekError(kType); }

 private:
  static constexpr Device::Type kType = Device::Type::kMetax;

  template <typename Call>
  static Error Run(Call call) {
    static const mcError_t initialized = mcInit(0);
    mcError_t error = initialized != mcSuccess ? initialized : call();
    return detail::RecordError(kType, Translate(error));
  }

  static Error Translate(mcError_t error) {
    switch (error) {
      case mcSuccess:
        return kSuccess;
      case mcErrorInvalidValue:
        return kErrorInvalidValue;
      case mcErrorMemoryAllocation:
        return kErrorMemoryAllocation;
      case mcErrorNotReady:
        return kErrorNotReady;
      case mcErrorInvalidDevice:
        return kErrorInvalidDevice;
      case mcErrorInvalidResourceHandle:
        return kErrorInvalidResourceHandle;
      case mcErrorDeinitialized:
        return kErrorCudartUnloading;
      default:
        return static_cast<Error>(error);
    }
  }

  static mcMemcpyKind Native(MemcpyKind kind) {
    switch (kind) {
      case kMemcpyHostToHost:
        return mcMemcpyHostToHost;
      case kMemcpyHostToDevice:
        return mcMemcpyHostToDevice;
      case kMemcpyDeviceToHost:
        return mcMemcpyDeviceToHost;
      case kMemcpyDeviceToDevice:
        return mcMemcpyDeviceToDevice;
      case kMemcpyDefault:
        return mcMemcpyDefault;
    }
    return static_cast<mcMemcpyKind>(kind);  // the SDK refuses it
  }
  static mcStream_t Native(Stream stream) {
    return detail::IsDefaultStream(stream) ? nullptr : reinterpret_cast<mcStream_t>(stream);
  }
  static mcEvent_t Native(Event event) { return reinterpret_cast<mcEvent_t>(event); }
  static mcGraph_t Native(Graph graph) { return reinterpret_cast<mcGraph_t>(graph); }
  static mcGraphExec_t Native(GraphExec exec) { return reinterpret_cast<mcGraphExec_t>(exec); }
  static mcMemPool_t Native(MemPool pool) { return reinterpret_cast<mcMemPool_t>(pool); }
  using NativeAttr = decltype(mcMemPoolAttrReleaseThreshold);
  static NativeAttr Native(MemPoolAttr attr) {
    switch (attr) {
      case kMemPoolReuseFollowEventDependencies:
        return mcMemPoolReuseFollowEventDependencies;
      case kMemPoolReuseAllowOpportunistic:
        return mcMemPoolReuseAllowOpportunistic;
      case kMemPoolReuseAllowInternalDependencies:
        return mcMemPoolReuseAllowInternalDependencies;
      case kMemPoolAttrReleaseThreshold:
        return mcMemPoolAttrReleaseThreshold;
      case kMemPoolAttrReservedMemCurrent:
        return mcMemPoolAttrReservedMemCurrent;
      case kMemPoolAttrReservedMemHigh:
        return mcMemPoolAttrReservedMemHigh;
      case kMemPoolAttrUsedMemCurrent:
        return mcMemPoolAttrUsedMemCurrent;
      case kMemPoolAttrUsedMemHigh:
        return mcMemPoolAttrUsedMemHigh;
    }
    return static_cast<NativeAttr>(attr);  // the SDK refuses it
  }
};

}  // namespace infini::rt::runtime
