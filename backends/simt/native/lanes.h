#pragma once

/// The place in the launch, barriers and logical groups, in device languages that have CUDA's
/// functions. The platform defines `detail::LaneMask`, whose bits are the lanes of a warp, and
/// `detail::kWarpSize`, their number.

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace infini_train::simt {

SIMT_HOST_DEVICE constexpr int WarpSize() {
  return detail::kWarpSize;
}

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

namespace detail {

template <int kWidth>
inline constexpr LaneMask kGroupMask = LaneMask(~LaneMask{0}) >> (kWarpSize - kWidth);

/// The first lane of the calling lane's logical group in its warp.
template <int kWidth>
SIMT_DEVICE inline unsigned FirstLane() {
  static_assert(kWidth > 0 && kWidth <= kWarpSize && (kWidth & (kWidth - 1)) == 0,
                "the width of a group is a power of two up to the warp's");
  return threadIdx.x & (kWarpSize - 1u) & ~(kWidth - 1u);
}

/// Bits of the calling lane's logical group in its warp.
template <int kWidth>
SIMT_DEVICE inline LaneMask GroupMask() {
  return kGroupMask<kWidth> << FirstLane<kWidth>();
}

/// Applies a shuffle of 32-bit words to a value of any size.
template <typename T, typename Move>
SIMT_DEVICE inline T MoveWords(const T& value, Move move) {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr int kWords = (sizeof(T) + 3) / 4;
  unsigned words[kWords] = {};
  memcpy(words, &value, sizeof(T));
  SIMT_UNROLL
  for (int i = 0; i < kWords; ++i)
    words[i] = move(words[i]);
  T result = value;
  memcpy(static_cast<void*>(&result), words, sizeof(T));
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
  const detail::LaneMask votes = __ballot_sync(detail::GroupMask<kWidth>(), predicate);
  return (votes >> detail::FirstLane<kWidth>()) & detail::kGroupMask<kWidth>;
}
template <int kWidth>
SIMT_DEVICE inline bool Any(bool predicate, Place = {}) {
  return Ballot<kWidth>(predicate) != 0;
}
template <int kWidth>
SIMT_DEVICE inline bool All(bool predicate, Place = {}) {
  return Ballot<kWidth>(predicate) == detail::kGroupMask<kWidth>;
}

}  // namespace infini_train::simt
