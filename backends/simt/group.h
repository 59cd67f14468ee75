#pragma once

#include <type_traits>

#include "backends/simt/geometry.h"
#include "backends/simt/math.h"

namespace infini_train::simt {

/// Functors of reductions. Max and min give NaN if any value is.
struct SumOp {
  template <typename T>
  SIMT_HOST_DEVICE constexpr T operator()(T a, T b) const {
    return a + b;
  }
};
struct MaxOp {
  template <typename T>
  SIMT_HOST_DEVICE constexpr T operator()(T a, T b) const {
    return Max(a, b);
  }
};
struct MinOp {
  template <typename T>
  SIMT_HOST_DEVICE constexpr T operator()(T a, T b) const {
    return Min(a, b);
  }
};

/// Width of the logical groups of ReduceBlock: blocks that use it are multiples of this.
inline constexpr int kGroupWidth = 32;

/// Index of the calling lane in its logical group.
template <int kWidth>
SIMT_DEVICE inline int GroupLane() {
  return ThreadIndex() & (kWidth - 1);
}

/// Combines the values of each kCount neighbouring lanes of a logical group, by default of all,
/// with the commutative `op`, in a fixed order. Each of these lanes gets the same result. All lanes
/// of the group must call it.
template <int kWidth, int kCount = kWidth, typename T, typename Op>
SIMT_DEVICE inline T ReduceGroup(T value, Op op, Place place = Place::current()) {
  for (int mask = kCount / 2; mask > 0; mask /= 2)
    value = op(value, ShuffleXor<kWidth>(value, mask, place));
  return value;
}

/// Combines the values of a block, whose size is a multiple of kGroupWidth, in a fixed order:
/// groups by butterfly, then their results from the first to the last onto `identity`. Every lane
/// gets the same result. All lanes of the block must call it; it ends with a barrier.
template <typename T, typename Op>
SIMT_DEVICE inline T ReduceBlock(T value, Op op, std::type_identity_t<T> identity,
                                 Place place = Place::current()) {
  SIMT_SHARED(T, partial, kMaxBlockSize / kGroupWidth);
  value = ReduceGroup<kGroupWidth>(value, op, place);
  if (GroupLane<kGroupWidth>() == 0) partial[ThreadIndex() / kGroupWidth] = value;
  SyncBlock(place);
  T result = identity;
  for (int group = 0; group < BlockSize() / kGroupWidth; ++group) {
    const T next = partial[group];
    result = op(result, next);
  }
  SyncBlock(place);
  return result;
}

}  // namespace infini_train::simt
