#pragma once

#include <cstdint>
#include <limits>

#include "backends/simt/kernels/attention/attention_running.h"
#include "backends/simt/kernels/norm/norm_row.h"
#include "backends/simt/strided.h"

/// What the kernel of CachedAttention is made of: new heads and rows of the cache on their way from
/// memory to the lanes.
namespace infini_train::simt {

inline constexpr int kCachedAttentionThreads = 256;

template <typename S>
struct CachedAttentionArguments {
  using C = ComputeType<S>;
  S* out;
  S* keys;
  S* values;
  const S* qkv;
  const std::int32_t* lengths;
  const C* cos;  ///< or null
  const C* sin;
  int cos_row, sin_row;
  NormParameter<S> query_norm, key_norm;
  bool normalizes;
  C eps, scale, inverse_size;
  C* partial_sums;    ///< [B, H, splits, D]
  C* partial_max;     ///< [B, H, splits]
  C* partial_totals;  ///< [B, H, splits]
  int batch, heads, kv_heads, head_size, capacity, positions, window;
  int group;   ///< heads that share keys and values
  int parts;   ///< blocks that share a group's heads
  int splits;  ///< blocks that share a head's positions
  Divider by_parts, by_splits;

  /// Of sequence b; -1 where it has no place.
  SIMT_DEVICE int LengthOf(int b) const {
    const int length = Load(lengths + b);
    return length >= 0 && length < positions ? length : -1;
  }
  /// The first position that is seen, of those up to `length`.
  SIMT_DEVICE int FirstSeen(int length) const {
    return window > 0 && length + 1 > window ? length + 1 - window : 0;
  }
  /// NaN where the sequence has no place.
  SIMT_DEVICE S Finish(C sum, C total, int length) const {
    if (length < 0) return FromCompute<S>(std::numeric_limits<C>::quiet_NaN());
    if constexpr (kIsHalf<S>) return FromCompute<S>(sum * FastReciprocal(total));
    return FromCompute<S>(sum / total);
  }
  /// Positions before the new one, and parameters.
  SIMT_DEVICE void NameEarlyReads() const {
    const std::int64_t rows = std::int64_t{batch} * kv_heads * capacity;
    ReadsEarly(lengths, batch);
    ReadsEarly(keys, rows * head_size);
    ReadsEarly(values, rows * head_size);
    if (cos == nullptr) return;
    ReadsEarly(cos, std::int64_t{positions - 1} * cos_row + head_size / 2);
    ReadsEarly(sin, std::int64_t{positions - 1} * sin_row + head_size / 2);
    for (const NormParameter<S>* norm : {&query_norm, &key_norm}) {
      if (norm->same != nullptr) ReadsEarly(norm->same, head_size);
      if (norm->single != nullptr) ReadsEarly(norm->single, head_size);
    }
  }
};

/// A head of the projection on its way to shared memory, one for a group of lanes: the elements of
/// a lane, in pairs that lie half a head apart, and what they are multiplied by, which is read
/// early.
template <typename S, int kHeadSize>
class HeadPart {
 public:
  using C = ComputeType<S>;

  SIMT_DEVICE explicit HeadPart(const CachedAttentionArguments<S>& args)
      : args_(args), pairs_((args.head_size + 1) / 2) {}

  SIMT_DEVICE void ReadFactors(const NormParameter<S>& norm, int position) {
    if (args_.cos == nullptr) return;
    SIMT_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      const int p = Pair(j);
      if (p >= pairs_) continue;
      cos_[j] = Load(args_.cos + std::int64_t{position} * args_.cos_row + p);
      sin_[j] = Load(args_.sin + std::int64_t{position} * args_.sin_row + p);
      if (!args_.normalizes) continue;
      low_weight_[j] = Element(norm, p);
      high_weight_[j] = Element(norm, p + pairs_);
    }
  }

  /// Heads of odd size, which are not rotated, lack the last element.
  SIMT_DEVICE void Read(const S* x) {
    SIMT_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      const int p = Pair(j);
      low_[j] = p < pairs_ ? ToCompute(Load(x + p)) : C(0);
      high_[j] =
          p + pairs_ < args_.head_size && p < pairs_ ? ToCompute(Load(x + p + pairs_)) : C(0);
    }
  }

  /// Normalises and rotates what was read, and rounds it as it would be in memory.
  SIMT_DEVICE void Prepare() {
    if (args_.cos == nullptr) return;
    if (args_.normalizes) {
      C sum = 0;
      SIMT_UNROLL
      for (int j = 0; j < kPairs; ++j)
        sum += low_[j] * low_[j] + high_[j] * high_[j];
      const C rstd =
          RsqrtFor<S>(ReduceGroup<kGroupWidth>(sum, SumOp{}) * args_.inverse_size + args_.eps);
      SIMT_UNROLL
      for (int j = 0; j < kPairs; ++j) {
        low_[j] *= rstd * low_weight_[j];
        high_[j] *= rstd * high_weight_[j];
      }
    }
    SIMT_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      const C first = low_[j] * cos_[j] - high_[j] * sin_[j];
      high_[j] = ToCompute(FromCompute<S>(low_[j] * sin_[j] + high_[j] * cos_[j]));
      low_[j] = ToCompute(FromCompute<S>(first));
    }
  }

  /// To kHeadSize elements, of which those behind the head become 0.
  template <typename T>
  SIMT_DEVICE void Write(const Shared<T>& out) const {
    SIMT_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      const int p = Pair(j);
      if (p < pairs_) out[p] = FromCompute<T>(low_[j]);
      if (p < pairs_ && p + pairs_ < args_.head_size) out[p + pairs_] = FromCompute<T>(high_[j]);
    }
    for (int i = args_.head_size + GroupLane<kGroupWidth>(); i < kHeadSize; i += kGroupWidth)
      out[i] = FromCompute<T>(ComputeType<T>(0));
  }

 private:
  static constexpr int kPairs = (kHeadSize / 2 + kGroupWidth - 1) / kGroupWidth;

  SIMT_DEVICE static int Pair(int j) { return GroupLane<kGroupWidth>() + j * kGroupWidth; }
  SIMT_DEVICE static C Element(const NormParameter<S>& norm, int i) {
    C value[1];
    norm.template Read<1>(i, value);
    return value[0];
  }

  const CachedAttentionArguments<S>& args_;
  int pairs_;
  C low_[kPairs], high_[kPairs];
  C cos_[kPairs] = {}, sin_[kPairs] = {};
  C low_weight_[kPairs] = {}, high_weight_[kPairs] = {};
};

/// Rows of the cache that the lanes of a block read, each its part of them; kVector promises that
/// they are whole vectors.
template <typename S, int kHeadSize, bool kVector>
class CacheRows {
 public:
  using Part = RowPart<S, kHeadSize>;
  static constexpr int kKeys = kPositions<S, kHeadSize>;

  /// Of positions from `cache_row` of the cache on, of which those at `end` and behind are not
  /// there.
  SIMT_DEVICE CacheRows(const CachedAttentionArguments<S>& args, std::int64_t cache_row, int end)
      : keys_(args.keys + cache_row * args.head_size),
        values_(args.values + cache_row * args.head_size),
        end_(end),
        size_(args.head_size) {}

  /// Asks for the lane's positions from s on, so that they are near when they are read.
  SIMT_DEVICE void Ask(int s) const {
    for (int x = GroupLane<kPositionLanes>() * kLine; x < size_; x += kPositionLanes * kLine) {
      SIMT_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        if (s + i >= end_) continue;
        BringNear(keys_ + At(s + i) + x);
        BringNear(values_ + At(s + i) + x);
      }
    }
  }

  /// The lane's positions from s on, zeros where there is none.
  SIMT_DEVICE void Read(int s, Part (&keys)[kKeys], Part (&values)[kKeys]) const {
    SIMT_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      const int size = s + i < end_ ? size_ : 0;
      keys[i].Read(keys_ + At(s + i), size, kVector);
      values[i].Read(values_ + At(s + i), size, kVector);
    }
  }

 private:
  /// Elements that come together.
  static constexpr int kLine = 128 / static_cast<int>(sizeof(S));

  SIMT_DEVICE int At(int s) const { return s * size_; }

  const S* keys_;
  const S* values_;
  int end_;
  int size_;
};

/// The lane's part of a query in shared memory.
template <typename S, int kHeadSize>
SIMT_DEVICE void ReadQuery(const Shared<ComputeType<S>>& row,
                           ComputeType<S> (&query)[RowPart<S, kHeadSize>::kCount]) {
  using Part = RowPart<S, kHeadSize>;
  constexpr int kWidth = Min(Part::kVector, kMaxVectorWidth<ComputeType<S>>);
  SIMT_UNROLL
  for (int i = 0; i < Part::kCount; i += kWidth) {
    const auto part =
        row.template Load<kWidth>(Part::Position(i / Part::kVector) + i % Part::kVector);
    SIMT_UNROLL
    for (int k = 0; k < kWidth; ++k)
      query[i + k] = part[k];
  }
}

}  // namespace infini_train::simt
