#pragma once

/// The dialect of backends/simt/ in CUDA.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "infini_train/core/dtype.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "primary_context.h"

#define SIMT_KERNEL __global__
#define SIMT_DEVICE __device__
#define SIMT_HOST_DEVICE __host__ __device__
#define SIMT_RESIDENT(lanes, blocks) __launch_bounds__(lanes, blocks)
#define SIMT_UNROLL _Pragma("unroll")
#define SIMT_DEVICE_TYPE kCUDA

namespace infini_train::simt {

/// Places are for the emulator's messages.
struct Place {
  SIMT_HOST_DEVICE static constexpr Place current() { return {}; }
};

using NativeStream = cudaStream_t;

inline constexpr int kMaxWarpSize = 64;
inline constexpr std::int64_t kMaxGridX = 2147483647;
inline constexpr std::int64_t kMaxGridYZ = 65535;
inline constexpr std::size_t kMaxSharedBytes = std::size_t{64} << 10;

}  // namespace infini_train::simt

#include "backends/simt/context.h"
#include "backends/simt/geometry.h"
#include "backends/simt/math.h"
#include "backends/simt/vector.h"
#include "simt_instructions.h"

namespace infini_train::simt {

SIMT_HOST_DEVICE constexpr int WarpSize() {
  return 32;
}

// The place in the launch.

SIMT_DEVICE inline int ThreadIndex() {
  return static_cast<int>(threadIdx.x);
}
SIMT_DEVICE inline int BlockSize() {
  return static_cast<int>(blockDim.x);
}
SIMT_DEVICE inline std::int64_t BlockIndex() {
  return blockIdx.x;
}
SIMT_DEVICE inline std::int64_t BlockIndexY() {
  return blockIdx.y;
}
SIMT_DEVICE inline std::int64_t BlockIndexZ() {
  return blockIdx.z;
}
SIMT_DEVICE inline std::int64_t GridSize() {
  return gridDim.x;
}
SIMT_DEVICE inline std::int64_t GridSizeY() {
  return gridDim.y;
}
SIMT_DEVICE inline std::int64_t GridSizeZ() {
  return gridDim.z;
}
SIMT_DEVICE inline std::int64_t GlobalThreadIndex() {
  return BlockIndex() * BlockSize() + ThreadIndex();
}
SIMT_DEVICE inline std::int64_t GlobalThreadCount() {
  return GridSize() * BlockSize();
}

// Barriers and logical groups.

namespace detail {

/// Bits of the calling lane's logical group in its warp.
template <int kWidth>
SIMT_DEVICE inline unsigned GroupMask() {
  static_assert(kWidth > 0 && kWidth <= 32 && (kWidth & (kWidth - 1)) == 0,
                "the width of a group is a power of two up to the warp's 32");
  return (0xFFFFFFFFu >> (32 - kWidth)) << (threadIdx.x & 31u & ~(kWidth - 1u));
}

/// Applies a shuffle of 32-bit words to a value of any size.
template <typename T, typename Move>
SIMT_DEVICE inline T MoveWords(const T& value, Move move) {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr int kWords = (sizeof(T) + 3) / 4;
  unsigned words[kWords] = {};
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < kWords; ++i)
    words[i] = move(words[i]);
  T result = value;
  memcpy(&result, words, sizeof(T));
  return result;
}

}  // namespace detail

SIMT_DEVICE inline void SyncBlock(Place = {}) {
  __syncthreads();
}
template <int kWidth>
SIMT_DEVICE inline void SyncGroup(Place = {}) {
  __syncwarp(detail::GroupMask<kWidth>());
}
template <int kWidth, typename T>
SIMT_DEVICE inline T Shuffle(T value, int source_lane, Place = {}) {
  return detail::MoveWords(value, [=](unsigned word) {
    return __shfl_sync(detail::GroupMask<kWidth>(), word, source_lane, kWidth);
  });
}
template <int kWidth, typename T>
SIMT_DEVICE inline T ShuffleXor(T value, int lane_mask, Place = {}) {
  return detail::MoveWords(value, [=](unsigned word) {
    return __shfl_xor_sync(detail::GroupMask<kWidth>(), word, lane_mask, kWidth);
  });
}
template <int kWidth, typename T>
SIMT_DEVICE inline T ShuffleDown(T value, int delta, Place = {}) {
  return detail::MoveWords(value, [=](unsigned word) {
    return __shfl_down_sync(detail::GroupMask<kWidth>(), word, delta, kWidth);
  });
}
template <int kWidth, typename T>
SIMT_DEVICE inline T ShuffleUp(T value, int delta, Place = {}) {
  return detail::MoveWords(value, [=](unsigned word) {
    return __shfl_up_sync(detail::GroupMask<kWidth>(), word, delta, kWidth);
  });
}
template <int kWidth>
SIMT_DEVICE inline std::uint64_t Ballot(bool predicate, Place = {}) {
  const unsigned votes = __ballot_sync(detail::GroupMask<kWidth>(), predicate);
  return (votes >> (threadIdx.x & 31u & ~(kWidth - 1u))) & (0xFFFFFFFFu >> (32 - kWidth));
}
template <int kWidth>
SIMT_DEVICE inline bool Any(bool predicate, Place = {}) {
  return __any_sync(detail::GroupMask<kWidth>(), predicate);
}
template <int kWidth>
SIMT_DEVICE inline bool All(bool predicate, Place = {}) {
  return __all_sync(detail::GroupMask<kWidth>(), predicate);
}

// Memory.

namespace detail {

/// The type in which the compiler moves so many bytes by one instruction.
template <std::size_t kBytes>
using RawOf = std::conditional_t<
    kBytes == 16, uint4,
    std::conditional_t<
        kBytes == 8, uint2,
        std::conditional_t<kBytes == 4, unsigned,
                           std::conditional_t<kBytes == 2, unsigned short, unsigned char>>>>;

template <int N, typename T>
SIMT_DEVICE inline Vec<T, N> LoadVector(const T* pointer) {
  using Raw = RawOf<sizeof(Vec<T, N>)>;
  static_assert(sizeof(Raw) == sizeof(Vec<T, N>));
  const Raw raw = *reinterpret_cast<const Raw*>(pointer);
  Vec<T, N> result;
  memcpy(&result, &raw, sizeof(result));
  return result;
}
template <typename T, int N>
SIMT_DEVICE inline void StoreVector(T* pointer, const Vec<T, N>& value) {
  using Raw = RawOf<sizeof(Vec<T, N>)>;
  static_assert(sizeof(Raw) == sizeof(value));
  Raw raw;
  memcpy(&raw, &value, sizeof(raw));
  *reinterpret_cast<Raw*>(pointer) = raw;
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
SIMT_DEVICE inline T Load(const T* pointer, Place = {}) {
  return *pointer;
}
template <typename T>
SIMT_DEVICE inline void Store(T* pointer, std::type_identity_t<T> value, Place = {}) {
  *pointer = value;
}
template <int N, typename T>
SIMT_DEVICE inline Vec<T, N> Load(const T* pointer, Place = {}) {
  return detail::LoadVector<N>(pointer);
}
template <typename T, int N>
SIMT_DEVICE inline void Store(T* pointer, const Vec<T, N>& value, Place = {}) {
  detail::StoreVector(pointer, value);
}

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

/// A view of shared memory.
template <typename T>
class Shared {
 public:
  Shared() = default;
  SIMT_DEVICE Shared(T* data, std::int64_t size) : data_(data), size_(size) {}

  SIMT_DEVICE std::int64_t size() const { return size_; }
  SIMT_DEVICE T& operator[](std::int64_t i) const { return data_[i]; }
  template <int N>
  SIMT_DEVICE Vec<T, N> Load(std::int64_t i, Place = {}) const {
    return detail::LoadVector<N>(data_ + i);
  }
  template <int N>
  SIMT_DEVICE void Store(std::int64_t i, const Vec<T, N>& value, Place = {}) const {
    detail::StoreVector(data_ + i, value);
  }
  SIMT_DEVICE Shared Sub(std::int64_t offset, std::int64_t count, Place = {}) const {
    return Shared(data_ + offset, count);
  }
  template <typename U>
  SIMT_DEVICE Shared<U> As(Place = {}) const {
    return Shared<U>(reinterpret_cast<U*>(data_), size_ * static_cast<std::int64_t>(sizeof(T)) /
                                                      static_cast<std::int64_t>(sizeof(U)));
  }

 private:
  T* data_ = nullptr;
  std::int64_t size_ = 0;
};

template <typename T>
SIMT_DEVICE inline T AtomicAdd(Shared<T> shared, std::int64_t i, std::type_identity_t<T> value,
                               Place = {}) {
  return AtomicAdd(&shared[i], value);
}
template <typename T>
SIMT_DEVICE inline T AtomicMax(Shared<T> shared, std::int64_t i, std::type_identity_t<T> value,
                               Place = {}) {
  return AtomicMax(&shared[i], value);
}
template <typename T>
SIMT_DEVICE inline T AtomicCas(Shared<T> shared, std::int64_t i, std::type_identity_t<T> expected,
                               std::type_identity_t<T> desired, Place = {}) {
  return AtomicCas(&shared[i], expected, desired);
}

// Copies from global to shared memory that a lane need not wait for.

template <int N, typename T>
SIMT_DEVICE inline void CopyAsync(const Shared<T>& to, std::int64_t i, const T* from, Place = {}) {
  constexpr int kBytes = sizeof(Vec<T, N>);
  if constexpr (kBytes < 4) {
    to.Store(i, Load<N>(from));
  } else {
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(&to[i]));
    if constexpr (kBytes == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from)
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

namespace detail {

SIMT_DEVICE inline std::int64_t DynamicSharedBytes() {
  unsigned bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  return bytes;
}

}  // namespace detail

// Bytes, as element types may have constructors, which shared memory does not run.
#define SIMT_SHARED(T, name, count)                                             \
  __shared__ alignas(16) unsigned char simt_shared_##name[sizeof(T) * (count)]; \
  const ::infini_train::simt::Shared<T> name(reinterpret_cast<T*>(simt_shared_##name), count)

#define SIMT_DYNAMIC_SHARED(T, name)             \
  extern __shared__ uint4 simt_dynamic_shared[]; \
  const ::infini_train::simt::Shared<T> name(    \
      reinterpret_cast<T*>(simt_dynamic_shared), \
      ::infini_train::simt::detail::DynamicSharedBytes() / static_cast<std::int64_t>(sizeof(T)))

// Launches.

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
  const std::string name = op == OpId::kCount ? "a kernel" : std::string(GetOpInfo(op).name);
  throw Error("launch of " + name + ": " + cudaGetErrorString(error));
}

/// Makes a context's device the current one for a scope: the default stream is the current
/// device's. One that was current but is not in use stays unused.
class LaunchDevice {
 public:
  explicit LaunchDevice(const Context& context) : wanted_(context.device.index()) {
    CheckLaunch(cudaGetDevice(&previous_), context.op);
    if (previous_ != wanted_) CheckLaunch(cudaSetDevice(wanted_), context.op);
  }
  ~LaunchDevice() {
    if (previous_ != wanted_ && cuda::HasPrimaryContext(previous_)) cudaSetDevice(previous_);
  }
  LaunchDevice(const LaunchDevice&) = delete;
  LaunchDevice& operator=(const LaunchDevice&) = delete;

 private:
  int wanted_;
  int previous_ = 0;
};

/// Dynamic shared memory that fits beside a kernel's static one in the 48 KB that a block has
/// without asking for more, and of which blocks enough to fill a multiprocessor fit anyway.
inline constexpr std::size_t kLittleSharedBytes = std::size_t{16} << 10;

}  // namespace detail

template <typename... P, typename... A>
void Launch(const Context& context, const Geometry& geometry, void (*kernel)(P...),
            A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "the kernel takes another number of arguments");
  static_assert((std::is_trivially_copyable_v<P> && ...),
                "arguments of kernels are trivially copyable");
  static_assert((sizeof(P) + ... + 0) <= kMaxArgumentBytes,
                "the arguments of a kernel take at most 4096 bytes");
  if (geometry.grid_x == 0 || geometry.grid_y == 0 || geometry.grid_z == 0) return;
  const detail::LaunchDevice device(context);
  const auto* function = reinterpret_cast<const void*>(kernel);
  if (geometry.dynamic_shared_bytes > detail::kLittleSharedBytes) {
    detail::CheckLaunch(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(geometry.dynamic_shared_bytes)),
                        context.op);
    // As many blocks to a multiprocessor as its memory holds.
    detail::CheckLaunch(
        cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        context.op);
  }
  std::tuple<std::remove_const_t<P>...> values(
      static_cast<std::remove_const_t<P>>(std::forward<A>(arguments))...);
  const dim3 grid(static_cast<unsigned>(geometry.grid_x), static_cast<unsigned>(geometry.grid_y),
                  static_cast<unsigned>(geometry.grid_z));
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {&value..., nullptr};
        detail::CheckLaunch(
            cudaLaunchKernel(function, grid, dim3(static_cast<unsigned>(geometry.block)), pointers,
                             geometry.dynamic_shared_bytes, context.stream),
            context.op);
      },
      values);
}

}  // namespace infini_train::simt
