#pragma once

#include <cstddef>
#include <string_view>

#include <cuda_runtime.h>

#include <infini/rt/device.h>
#include <infini/rt/export.h>
#include <infini/rt/handles.h>
#include <infini/rt/last_error.h>
#include <infini/rt/runtime.h>
#include <infini/rt/types.h>

#define INFINI_RT_NATIVE(name) cuda##name

namespace infini::rt::runtime {

/// NVIDIA: InfiniRT's names are CUDA's, so every entry is one call. Handles, enumerators and error
/// numbers are the same on both sides and pass through unchanged.
template <>
struct Runtime<Device::Type::kNvidia> {
#include "native/cuda_style/async_memory.inc"
#include "native/cuda_style/common.inc"
#include "native/cuda_style/extras.inc"
#include "native/cuda_style/memory_pools.inc"

  static Error MemPoolTrimTo(MemPool pool, std::size_t min_bytes_to_keep) {
    return Run([&] { return cudaMemPoolTrimTo(Native(pool), min_bytes_to_keep); });
  }
  static Error GraphInstantiate(GraphExec* graph_exec, Graph graph, unsigned long long flags) {
    return Run(
        [&] { return cudaGraphInstantiateWithFlags(Native(graph_exec), Native(graph), flags); });
  }

  /// Whether the process uses a device already. Making another one current would set it up, with
  /// hundreds of megabytes of its memory.
  INFINI_RT_API static bool IsInUse(int device);

  /// Memory of the current device in pieces, by the driver's virtual memory management: as
  /// `Runtime<Device::Type::kCpu>` has it, but that what is wrong is the driver's to find. Every
  /// device that reaches another's memory reaches this as well. `kErrorNotSupported`, or a
  /// granularity of 0: the device has none.
  INFINI_RT_API static Error MemGetAllocationGranularity(std::size_t* granularity);
  INFINI_RT_API static Error MemAddressReserve(void** ptr, std::size_t size);
  INFINI_RT_API static Error MemAddressFree(void* ptr, std::size_t size);
  INFINI_RT_API static Error MemMap(void* ptr, std::size_t size);
  INFINI_RT_API static Error MemUnmap(void* ptr, std::size_t size);

  static Error GetLastError() {
    return static_cast<Error>(cudaGetLastError());
  }
  static Error PeekAtLastError() {
    return static_cast<Error>(cudaPeekAtLastError());
  }
  static const char* GetErrorName(Error error) {
    return cudaGetErrorName(static_cast<cudaError_t>(error));
  }
  static const char* GetErrorString(Error error) {
    return cudaGetErrorString(static_cast<cudaError_t>(error));
  }

 private:
  static constexpr Device::Type kType = Device::Type::kNvidia;
  static constexpr bool kCudaNumbers = true;
  static constexpr bool kExternalWaits = true;
  static constexpr bool kReservedStreams = true;

  template <typename Call>
  static Error Run(Call call) {
    return static_cast<Error>(call());
  }

#include "native/cuda_style/conversions.inc"

  static cudaMemPool_t Native(MemPool pool) {
    return reinterpret_cast<cudaMemPool_t>(pool);
  }
  static cudaMemPoolAttr Native(MemPoolAttr attr) {
    return static_cast<cudaMemPoolAttr>(attr);
  }
};

static_assert(cudaErrorNotReady == static_cast<int>(kErrorNotReady));
static_assert(cudaErrorStreamCaptureWrongThread ==
              static_cast<int>(kErrorStreamCaptureWrongThread));
static_assert(cudaErrorNotSupported == static_cast<int>(kErrorNotSupported));
static_assert(cudaMemcpyDefault == static_cast<int>(kMemcpyDefault));
static_assert(cudaStreamCaptureModeRelaxed == static_cast<int>(kStreamCaptureModeRelaxed));
static_assert(cudaStreamCaptureStatusInvalidated ==
              static_cast<int>(kStreamCaptureStatusInvalidated));
static_assert(cudaMemPoolAttrUsedMemHigh == static_cast<int>(kMemPoolAttrUsedMemHigh));

}  // namespace infini::rt::runtime

#undef INFINI_RT_NATIVE
