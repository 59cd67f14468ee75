#pragma once

#include <cstddef>

#include <mcr/mc_runtime.h>

#include <infini/rt/device.h>
#include <infini/rt/handles.h>
#include <infini/rt/last_error.h>
#include <infini/rt/runtime.h>
#include <infini/rt/types.h>

#define INFINI_RT_NATIVE(name) mc##name

namespace infini::rt::runtime {

/// MetaX: MACA's names are CUDA's with the prefix mc. `mcInit` must come before any other call, so
/// the first call makes it. Error codes are translated by name where the name is known.
template <>
struct Runtime<Device::Type::kMetax> {
#include "native/cuda_style/async_memory.inc"
#include "native/cuda_style/common.inc"
#include "native/cuda_style/memory_pools.inc"

  static Error GetDeviceProperties(DeviceProp* prop, int device) {
    if (prop == nullptr) return Refuse(kErrorInvalidValue);
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
  // The SDK has the asynchronous form only; in the default stream it is the synchronous one.
  static Error MemcpyPeer(void* dst, int dst_device, const void* src, int src_device,
                          std::size_t count) {
    return MemcpyPeerAsync(dst, dst_device, src, src_device, count, nullptr);
  }
  static Error GraphInstantiate(GraphExec* graph_exec, Graph graph, unsigned long long flags) {
    if (!detail::CanInstantiate(graph_exec, graph, flags)) return Refuse(kErrorInvalidValue);
    return Run(
        [&] { return mcGraphInstantiate(Native(graph_exec), Native(graph), nullptr, nullptr, 0); });
  }

  static Error GetLastError() {
    Error own = detail::TakeError(kType);
    Error native = Translate(mcGetLastError());
    return own != kSuccess ? own : native;
  }
  static Error PeekAtLastError() {
    return detail::PeekError(kType);
  }

 private:
  static constexpr Device::Type kType = Device::Type::kMetax;
  static constexpr bool kCudaNumbers = false;
  static constexpr bool kExternalWaits = false;
  static constexpr bool kReservedStreams = false;

  static mcError_t Initialized() {
    static const mcError_t initialized = mcInit(0);
    return initialized;
  }

  template <typename Call>
  static Error Run(Call call) {
    mcError_t error = Initialized();
    if (error == mcSuccess) error = call();
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

#include "native/cuda_style/conversions.inc"

  static mcMemPool_t Native(MemPool pool) {
    return reinterpret_cast<mcMemPool_t>(pool);
  }
  using NativeAttr = decltype(mcMemPoolAttrReleaseThreshold);
  static NativeAttr Native(MemPoolAttr attr) {
    switch (attr) {
      case kMemPoolAttrReleaseThreshold:
        return mcMemPoolAttrReleaseThreshold;
      case kMemPoolAttrReservedMemHigh:
        return mcMemPoolAttrReservedMemHigh;
      case kMemPoolAttrUsedMemHigh:
        return mcMemPoolAttrUsedMemHigh;
      default:
        return static_cast<NativeAttr>(-1);  // not known by name: the SDK refuses it
    }
  }
};

}  // namespace infini::rt::runtime

#undef INFINI_RT_NATIVE
