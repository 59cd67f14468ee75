#pragma once

/// The dialect of backends/simt/ in CUDA.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "infini_train/core/device/launch_overlap.h"
#include "infini_train/core/dtype.h"
#include "infini_train/ops/dispatch.h"
#include "primary_context.h"

#define SIMT_RESIDENT(lanes, blocks) __launch_bounds__(lanes, blocks)
#define SIMT_DEVICE_TYPE kCUDA

#include "backends/simt/native/language.h"

namespace infini_train::simt {

using NativeStream = cudaStream_t;

}  // namespace infini_train::simt

#include "backends/simt/context.h"
#include "backends/simt/geometry.h"
#include "backends/simt/math.h"
#include "backends/simt/vector.h"
#include "simt_instructions.h"

namespace infini_train::simt {

namespace detail {

using LaneMask = unsigned;
inline constexpr int kWarpSize = 32;

SIMT_DEVICE inline std::int64_t DynamicSharedBytes() {
  unsigned bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  return bytes;
}

/// The type that the atomic functions know a 64-bit integer by.
template <typename T>
using AtomicType =
    std::conditional_t<std::is_integral_v<T> && sizeof(T) == 8,
                       std::conditional_t<std::is_signed_v<T>, long long, unsigned long long>, T>;
/// Sums of signed integers are those of unsigned ones.
template <typename T>
using SumType =
    std::conditional_t<std::is_same_v<AtomicType<T>, long long>, unsigned long long, AtomicType<T>>;

}  // namespace detail

template <typename T>
SIMT_DEVICE inline T AtomicAdd(T* pointer, std::type_identity_t<T> value, Place = {}) {
  using Native = detail::SumType<T>;
  return static_cast<T>(atomicAdd(reinterpret_cast<Native*>(pointer), static_cast<Native>(value)));
}
template <typename T>
SIMT_DEVICE inline T AtomicMax(T* pointer, std::type_identity_t<T> value, Place = {}) {
  using Native = detail::AtomicType<T>;
  return static_cast<T>(atomicMax(reinterpret_cast<Native*>(pointer), static_cast<Native>(value)));
}
template <typename T>
SIMT_DEVICE inline T AtomicCas(T* pointer, std::type_identity_t<T> expected,
                               std::type_identity_t<T> desired, Place = {}) {
  using Native = detail::AtomicType<T>;
  return static_cast<T>(atomicCAS(reinterpret_cast<Native*>(pointer), static_cast<Native>(expected),
                                  static_cast<Native>(desired)));
}

}  // namespace infini_train::simt

#include "backends/simt/native/lanes.h"
#include "backends/simt/native/launch.h"
#include "backends/simt/native/memory.h"

namespace infini_train::simt {

template <typename T>
SIMT_DEVICE inline void BringNear(const T* pointer) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(pointer));
}

// Copies from global to shared memory that a lane need not wait for.

inline constexpr bool kCopiesAreAsync = true;

template <int N, typename T>
SIMT_DEVICE inline void CopyAsync(const Shared<T>& to, std::int64_t i, const T* from, Place = {}) {
  constexpr int kBytes = sizeof(Vec<T, N>);
  if constexpr (kBytes < 4) {
    to.Store(i, Load<N>(from));
  } else {
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(&to[i]));
    if constexpr (kBytes == 16) {
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(address), "l"(from)
                   : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from),
                   "n"(kBytes)
                   : "memory");
    }
  }
}
SIMT_DEVICE inline void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
SIMT_DEVICE inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Launches, which may begin early as CUDA's programmatic dependent launches.

SIMT_DEVICE inline void WaitForEarlier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
SIMT_DEVICE inline void LetLaterBegin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Dynamic shared memory that a block of the device may ask for where it has little other.
inline std::size_t MaxDynamicSharedBytes(const Context& context) {
  int bytes = 0;
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.device.index());
  constexpr std::size_t kOther = 2048;
  return std::max(kMaxSharedBytes, static_cast<std::size_t>(bytes)) - kOther;
}

/// Of the device: how many blocks run without sharing one's resources.
inline std::int64_t MultiprocessorCount(const Context& context) {
  int count = 1;
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, context.device.index());
  return count;
}

namespace detail {

inline void CheckLaunch(cudaError_t error, OpId op) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // No later call is blamed for it.
  ThrowLaunchError(op, cudaGetErrorString(error));
}

struct DeviceRuntime {
  static cudaError_t Get(int* device) { return cudaGetDevice(device); }
  static cudaError_t Set(int device) { return cudaSetDevice(device); }
  static void Check(cudaError_t error, OpId op) { CheckLaunch(error, op); }
  static bool IsInUse(int device) { return cuda::HasPrimaryContext(device); }
};
using LaunchDevice = CurrentDevice<DeviceRuntime>;

/// Whether the kernel may begin early, and its machine code is one that then waits. Drivers before
/// 12.3 cannot capture such a launch.
inline bool BeginsEarly(const Geometry& geometry, const void* kernel) {
  if (!geometry.begins_early || !LaunchOverlap::IsAllowed()) return false;
  static const bool can_capture = [] {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess && version >= 12030;
  }();
  cudaFuncAttributes attributes{};
  return can_capture && cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess &&
         attributes.ptxVersion >= 90;
}

/// Dynamic shared memory that fits beside a kernel's static one in the 48 KB that a block has
/// without asking for more, and of which blocks enough to fill a multiprocessor fit anyway.
inline constexpr std::size_t kLittleSharedBytes = std::size_t{16} << 10;

}  // namespace detail

template <typename... P, typename... A>
void Launch(const Context& context, const Geometry& geometry, void (*kernel)(P...),
            A&&... arguments) {
  detail::CheckParameters<sizeof...(A), P...>();
  if (detail::IsEmpty(geometry)) return;
  const detail::LaunchDevice device(context);
  const auto* function = reinterpret_cast<const void*>(kernel);
  if (geometry.dynamic_shared_bytes > detail::kLittleSharedBytes) {
    detail::CheckLaunch(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(geometry.dynamic_shared_bytes)),
                        context.op);
  }
  const bool begins_early = detail::BeginsEarly(geometry, function);
  // As many blocks to a multiprocessor as its memory holds; and a division of it, the same for all
  // that may run side by side, which would else have to wait for another.
  if (geometry.dynamic_shared_bytes > detail::kLittleSharedBytes || begins_early) {
    detail::CheckLaunch(
        cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        context.op);
  }
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = detail::GridOf(geometry);
  config.blockDim = dim3(static_cast<unsigned>(geometry.block));
  config.dynamicSmemBytes = geometry.dynamic_shared_bytes;
  config.stream = context.stream;
  config.attrs = &early;
  config.numAttrs = begins_early ? 1 : 0;
  std::tuple<std::remove_const_t<P>...> values(
      static_cast<std::remove_const_t<P>>(std::forward<A>(arguments))...);
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {&value..., nullptr};
        detail::CheckLaunch(cudaLaunchKernelExC(&config, function, pointers), context.op);
      },
      values);
}

}  // namespace infini_train::simt
