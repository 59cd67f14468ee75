#pragma once

/// The dialect of backends/simt/ in MACA. Warps have 64 lanes on MetaX' chips; the kernels' groups
/// have 32 at most, so that a warp holds two.

#include <common/maca_bfloat16.h>
#include <common/maca_fp16.h>
#include <mcr/mc_runtime.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "infini_train/core/dtype.h"
#include "infini_train/ops/dispatch.h"

#define SIMT_DEVICE_TYPE kPrivateUse1
#define SIMT_RESIDENT(lanes, blocks) __launch_bounds__(lanes)

#include "backends/simt/native/language.h"

namespace infini_train::simt {

using NativeStream = mcStream_t;

}  // namespace infini_train::simt

#include "backends/simt/context.h"
#include "backends/simt/geometry.h"
#include "backends/simt/math.h"
#include "backends/simt/vector.h"

namespace infini_train::simt {

template <>
SIMT_HOST_DEVICE inline BFloat16 FromCompute<BFloat16>(float value) {
  return std::bit_cast<BFloat16>(__float2bfloat16_rn(value));
}
template <>
SIMT_HOST_DEVICE inline Float16 FromCompute<Float16>(float value) {
  return std::bit_cast<Float16>(__float2half_rn(value));
}

template <>
SIMT_DEVICE inline float FastRsqrt<float>(float x) {
  return rsqrtf(x);
}
// __frcp_rn rounds correctly, which takes branches.
template <>
SIMT_DEVICE inline float FastReciprocal<float>(float x) {
  const float root = FastRsqrt(x);
  return root * root;
}

namespace detail {

/// What the compiler itself takes for a mask: a bit for each lane.
using LaneMask = decltype(__ballot_sync(0, 0));
inline constexpr int kWarpSize = 8 * sizeof(LaneMask);

/// Kernels are not told; this is the most.
SIMT_DEVICE inline std::int64_t DynamicSharedBytes() {
  return kMaxSharedBytes;
}

/// Replaces what is at `pointer` by `change` of it, and returns what was there.
template <typename T, typename Change>
SIMT_DEVICE inline T Replace(T* pointer, Change change) {
  using Word = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;
  static_assert(sizeof(T) == sizeof(Word));
  auto* const address = reinterpret_cast<Word*>(pointer);
  Word found = *address;
  for (;;) {
    T old;
    memcpy(&old, &found, sizeof(T));
    const T changed = change(old);
    Word word;
    memcpy(&word, &changed, sizeof(T));
    const Word before = atomicCAS(address, found, word);
    if (before == found) return old;
    found = before;
  }
}

}  // namespace detail

// MACA is known to add float, int and unsigned long long, and to compare and swap words. The rest
// comes from that.

template <typename T>
SIMT_DEVICE inline T AtomicAdd(T* pointer, std::type_identity_t<T> value, Place = {}) {
  if constexpr (std::is_same_v<T, double>) {
    return detail::Replace(pointer, [=](T old) { return old + value; });
  } else {
    using Integer = std::conditional_t<sizeof(T) == 8, unsigned long long, int>;
    using Native = std::conditional_t<std::is_integral_v<T>, Integer, T>;
    return static_cast<T>(
        atomicAdd(reinterpret_cast<Native*>(pointer), static_cast<Native>(value)));
  }
}
template <typename T>
SIMT_DEVICE inline T AtomicMax(T* pointer, std::type_identity_t<T> value, Place = {}) {
  return detail::Replace(pointer, [=](T old) { return old < value ? value : old; });
}
template <typename T>
SIMT_DEVICE inline T AtomicCas(T* pointer, std::type_identity_t<T> expected,
                               std::type_identity_t<T> desired, Place = {}) {
  using Native = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;
  return static_cast<T>(atomicCAS(reinterpret_cast<Native*>(pointer), static_cast<Native>(expected),
                                  static_cast<Native>(desired)));
}

}  // namespace infini_train::simt

#include "backends/simt/native/lanes.h"
#include "backends/simt/native/launch.h"
#include "backends/simt/native/memory.h"

namespace infini_train::simt {

// Memory is not asked for before it is read, and copies to shared memory that a lane need not wait
// for elsewhere are done at once.

template <typename T>
SIMT_DEVICE inline void BringNear(const T*) {}

inline constexpr bool kCopiesAreAsync = false;

template <int N, typename T>
SIMT_DEVICE inline void CopyAsync(const Shared<T>& to, std::int64_t i, const T* from, Place = {}) {
  to.Store(i, Load<N>(from));
}
SIMT_DEVICE inline void CommitCopies() {}
template <int kPending>
SIMT_DEVICE inline void WaitForCopies() {}

// Launches, of which none begins before the one before it has ended.

SIMT_DEVICE inline void WaitForEarlier() {}
SIMT_DEVICE inline void LetLaterBegin() {}

namespace detail {

inline void CheckLaunch(mcError_t error, OpId op) {
  if (error == mcSuccess) return;
  ThrowLaunchError(op, mcGetErrorString(error));
}

struct DeviceRuntime {
  static mcError_t Get(int* device) { return mcGetDevice(device); }
  static mcError_t Set(int device) { return mcSetDevice(device); }
  static void Check(mcError_t error, OpId op) { CheckLaunch(error, op); }
  static bool IsInUse(int) { return true; }
};
using LaunchDevice = CurrentDevice<DeviceRuntime>;

}  // namespace detail

/// Of the device: how many blocks run without sharing one's resources.
inline std::int64_t MultiprocessorCount(const Context& context) {
  int count = 1;
  mcDeviceGetAttribute(&count, mcDeviceAttributeMultiProcessorCount, context.device.index());
  return count;
}

/// Dynamic shared memory that a block of the device may ask for where it has little other.
inline std::size_t MaxDynamicSharedBytes(const Context&) {
  return kMaxSharedBytes - 2048;
}

template <typename... P, typename... A>
void Launch(const Context& context, const Geometry& geometry, void (*kernel)(P...),
            A&&... arguments) {
  detail::CheckParameters<sizeof...(A), P...>();
  if (detail::IsEmpty(geometry)) return;
  const detail::LaunchDevice device(context);
  const dim3 block(static_cast<unsigned>(geometry.block));
  static_cast<void>(mcGetLastError());  // The launch is not blamed for an older one.
  kernel<<<detail::GridOf(geometry), block, geometry.dynamic_shared_bytes, context.stream>>>(
      static_cast<std::remove_const_t<P>>(std::forward<A>(arguments))...);
  detail::CheckLaunch(mcGetLastError(), context.op);
}

}  // namespace infini_train::simt
