#pragma once

#include <cstdint>
#include <limits>

#include "backends/simt/kernels/attention/attention_tile.h"
#include "backends/simt/kernels/softmax/statistics.h"
#include "backends/simt/packed.h"

/// Attention of few queries to many positions, which groups of lanes share out: each group has a
/// running softmax over the positions that it takes (Milakov and Gimelshein, "Online normalizer
/// calculation for softmax", 2018), and these are merged at the end, always in the same order.
namespace infini_train::simt {

inline constexpr int kPositionLanes = 8;  ///< that share a position, a logical group
/// That a group takes at once: as many as leave their keys and values in registers.
template <typename S, int kHeadSize>
inline constexpr int kPositions = kHeadSize * sizeof(S) <= 256   ? 4
                                  : kHeadSize * sizeof(S) <= 512 ? 2
                                                                 : 1;

/// Of `count` positions, whether the lane's group of 32 lanes takes any: those that differ in that
/// may part, others call the functions of larger groups together.
template <int kKeys, typename Count>
SIMT_DEVICE bool TakesAny(Count count) {
  return ThreadIndex() / kGroupWidth * (kGroupWidth / kPositionLanes * kKeys) < count;
}

/// A lane's elements of a row of up to kHeadSize, as they are in memory: every kPositionLanes-th
/// vector. Those beyond the row are 0.
template <typename S, int kHeadSize>
struct RowPart {
  using C = ComputeType<S>;
  static constexpr int kVector = kMaxVectorWidth<S>;
  static constexpr int kPieces = kHeadSize / (kPositionLanes * kVector);
  static constexpr int kCount = kPieces * kVector;

  SIMT_DEVICE static int Position(int piece) {
    return (piece * kPositionLanes + GroupLane<kPositionLanes>()) * kVector;
  }

  /// Where not `vector`, element by element.
  SIMT_DEVICE void Read(const S* row, int size, bool vector) {
    SIMT_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) {
      const int x = Position(piece);
      pieces[piece] = {};
      if (vector) {
        if (x < size) pieces[piece] = Packed<S, kVector>::Of(row + x);
        continue;
      }
      Vec<S, kVector> elements;
      SIMT_UNROLL
      for (int i = 0; i < kVector; ++i)
        elements[i] = x + i < size ? Load(row + x + i) : FromCompute<S>(C(0));
      pieces[piece] = Packed<S, kVector>(elements);
    }
  }
  /// From kHeadSize elements.
  SIMT_DEVICE void Read(const Shared<S>& row) {
    SIMT_UNROLL
    for (int piece = 0; piece < kPieces; ++piece)
      pieces[piece] = Packed<S, kVector>(row.template Load<kVector>(Position(piece)));
  }

  SIMT_DEVICE void Widen(C (&numbers)[kCount]) const {
    SIMT_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) {
      C part[kVector];
      pieces[piece].Widen(part);
      SIMT_UNROLL
      for (int i = 0; i < kVector; ++i)
        numbers[piece * kVector + i] = part[i];
    }
  }

  Packed<S, kVector> pieces[kPieces];
};

/// The products of a query with keys, in every lane of the group. All groups of 32 lanes call it.
template <typename S, int kHeadSize, int kKeys>
SIMT_DEVICE Vec<ComputeType<S>, kKeys> Scores(
    const ComputeType<S> (&query)[RowPart<S, kHeadSize>::kCount],
    const RowPart<S, kHeadSize> (&keys)[kKeys]) {
  using C = ComputeType<S>;
  constexpr int kCount = RowPart<S, kHeadSize>::kCount;
  Vec<C, kKeys> scores{};
  SIMT_UNROLL
  for (int i = 0; i < kKeys; ++i) {
    C key[kCount];
    keys[i].Widen(key);
    SIMT_UNROLL
    for (int x = 0; x < kCount; ++x)
      scores[i] += query[x] * key[x];
  }
  return ReduceGroup<kGroupWidth, kPositionLanes>(scores, RowSum());
}

/// A group's running softmax of a query, of whose sums a lane has the elements of a RowPart.
template <typename S, int kHeadSize>
struct RunningSoftmax {
  using C = ComputeType<S>;
  using Part = RowPart<S, kHeadSize>;
  C max = -std::numeric_limits<C>::infinity();
  C total = 0;
  C sums[Part::kCount] = {};

  /// Takes positions with these scores, -inf for none. The factors are those of dropout.
  template <int kKeys>
  SIMT_DEVICE void Add(const Vec<C, kKeys>& scores, const Part (&values)[kKeys],
                       const C (&factors)[kKeys]) {
    C new_max = max;
    SIMT_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      if (scores[i] > new_max) new_max = scores[i];
    }
    Shrink(new_max);
    const ShiftedExponential<S> exponential(SoftmaxShift(max));
    SIMT_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      const C weight = exponential(scores[i]);
      total += weight;
      C value[Part::kCount];
      values[i].Widen(value);
      SIMT_UNROLL
      for (int x = 0; x < Part::kCount; ++x)
        sums[x] += weight * factors[i] * value[x];
    }
  }

  /// Takes what the other groups of 32 lanes have; those that are first among them have it all.
  SIMT_DEVICE void MergeGroups() {
    SIMT_UNROLL
    for (int distance = kPositionLanes; distance < kGroupWidth; distance *= 2) {
      RunningSoftmax other = ShuffleXor<kGroupWidth>(*this, distance);
      const C new_max = other.max > max ? other.max : max;
      Shrink(new_max);
      other.Shrink(new_max);
      total += other.total;
      SIMT_UNROLL
      for (int x = 0; x < Part::kCount; ++x)
        sums[x] += other.sums[x];
    }
  }

 private:
  SIMT_DEVICE void Shrink(C new_max) {
    const C factor = ShiftedExponential<S>(SoftmaxShift(new_max))(max);
    max = new_max;
    total *= factor;
    SIMT_UNROLL
    for (int x = 0; x < Part::kCount; ++x)
      sums[x] *= factor;
  }
};

/// What the groups of 32 lanes of a block have found of a query, in shared memory.
template <typename S, int kHeadSize, int kGroups>
struct BlockSoftmax {
  using C = ComputeType<S>;
  static constexpr int kElements = kGroups * (kHeadSize + 2);

  /// Of memory of kElements.
  SIMT_DEVICE explicit BlockSoftmax(const Shared<C>& memory)
      : sums(memory.Sub(0, kGroups * kHeadSize)),
        maxima(memory.Sub(kGroups * kHeadSize, kGroups)),
        totals(memory.Sub(kGroups * (kHeadSize + 1), kGroups)) {}

  /// Every lane of the block calls it, and then waits at a barrier.
  SIMT_DEVICE void Put(RunningSoftmax<S, kHeadSize>& running) const {
    using Part = RowPart<S, kHeadSize>;
    running.MergeGroups();
    if (GroupLane<kGroupWidth>() >= kPositionLanes) return;
    const int group = ThreadIndex() / kGroupWidth;
    SIMT_UNROLL
    for (int piece = 0; piece < Part::kPieces; ++piece) {
      SIMT_UNROLL
      for (int i = 0; i < Part::kVector; ++i)
        sums[group * kHeadSize + Part::Position(piece) + i] =
            running.sums[piece * Part::kVector + i];
    }
    if (GroupLane<kPositionLanes>() == 0) {
      maxima[group] = running.max;
      totals[group] = running.total;
    }
  }

  /// The whole: its maximum and total, and how much of each group's sums is in it.
  struct Merged {
    C max = -std::numeric_limits<C>::infinity();
    C total = 0;
    C weights[kGroups];
  };
  SIMT_DEVICE Merged Merge() const {
    Merged merged;
    SIMT_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      merged.weights[g] = maxima[g];
      if (merged.weights[g] > merged.max) merged.max = merged.weights[g];
    }
    const ShiftedExponential<S> exponential(SoftmaxShift(merged.max));
    SIMT_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      const C group_total = totals[g];
      merged.weights[g] = exponential(merged.weights[g]);
      merged.total += group_total * merged.weights[g];
    }
    return merged;
  }
  /// Element x of the sums.
  SIMT_DEVICE C Sum(const Merged& merged, int x) const {
    C sum = 0;
    SIMT_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      const C group_sum = sums[g * kHeadSize + x];
      sum += group_sum * merged.weights[g];
    }
    return sum;
  }

  Shared<C> sums;    ///< [kGroups, kHeadSize]
  Shared<C> maxima;  ///< [kGroups]
  Shared<C> totals;  ///< [kGroups]
};

}  // namespace infini_train::simt
