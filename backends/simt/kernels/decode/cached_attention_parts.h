#pragma once

#include <cstdint>
#include <limits>

#include "backends/simt/kernels/attention/attention_running.h"
#include "backends/simt/kernels/norm/norm_row.h"

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
  std::int64_t cos_row, sin_row;
  NormParameter<S> query_norm, key_norm;
  bool normalizes;
  C eps, scale;
  C* partial_sums;    ///< [B, H, splits, D]
  C* partial_max;     ///< [B, H, splits]
  C* partial_totals;  ///< [B, H, splits]
  std::int64_t batch, heads, kv_heads, head_size, capacity, positions, splits, window;
  int ahead;  ///< steps of a block that have memory to be read ahead into
  bool vector;

  SIMT_HOST_DEVICE std::int64_t group() const { return heads / kv_heads; }
  /// Parts of a group that have at most so many heads.
  SIMT_HOST_DEVICE std::int64_t HeadParts(int most) const { return (group() + most - 1) / most; }
  /// Of sequence b; -1 where it has no place.
  SIMT_DEVICE std::int64_t LengthOf(std::int64_t b) const {
    const std::int64_t length = Load(lengths + b);
    return length >= 0 && length < positions ? length : -1;
  }
  /// The first position that is seen, of those up to `length`.
  SIMT_DEVICE std::int64_t FirstSeen(std::int64_t length) const {
    return window > 0 && length + 1 > window ? length + 1 - window : 0;
  }
  /// NaN where the sequence has no place.
  SIMT_DEVICE S Finish(C sum, C total, std::int64_t length) const {
    return FromCompute<S>(length >= 0 ? sum / total : std::numeric_limits<C>::quiet_NaN());
  }
  /// Positions before the new one, and parameters.
  SIMT_DEVICE void NameEarlyReads() const {
    ReadsEarly(lengths, batch);
    ReadsEarly(keys, batch * kv_heads * capacity * head_size);
    ReadsEarly(values, batch * kv_heads * capacity * head_size);
    if (cos == nullptr) return;
    ReadsEarly(cos, (positions - 1) * cos_row + head_size / 2);
    ReadsEarly(sin, (positions - 1) * sin_row + head_size / 2);
    for (const NormParameter<S>* norm : {&query_norm, &key_norm}) {
      if (norm->same != nullptr) ReadsEarly(norm->same, head_size);
      if (norm->single != nullptr) ReadsEarly(norm->single, head_size);
    }
  }
};

/// A head of the projection on its way to shared memory: the elements of a lane of its group, in
/// pairs that lie half a head apart, and what they are multiplied by, which is read early.
template <typename S, int kHeadSize>
class HeadPart {
 public:
  using C = ComputeType<S>;

  SIMT_DEVICE explicit HeadPart(const CachedAttentionArguments<S>& args)
      : args_(args), size_(static_cast<int>(args.head_size)), pairs_((size_ + 1) / 2) {}

  SIMT_DEVICE void ReadFactors(const NormParameter<S>& norm, std::int64_t position) {
    if (args_.cos == nullptr) return;
    SIMT_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      const int p = Pair(j);
      if (p >= pairs_) continue;
      cos_[j] = Load(args_.cos + position * args_.cos_row + p);
      sin_[j] = Load(args_.sin + position * args_.sin_row + p);
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
      high_[j] = p + pairs_ < size_ && p < pairs_ ? ToCompute(Load(x + p + pairs_)) : C(0);
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
      sum = ReduceGroup<kPositionLanes>(sum, SumOp{});
      const C rstd = C(1) / Sqrt(sum / static_cast<C>(size_) + args_.eps);
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
      if (p < pairs_ && p + pairs_ < size_) out[p + pairs_] = FromCompute<T>(high_[j]);
    }
    for (int i = size_ + GroupLane<kPositionLanes>(); i < kHeadSize; i += kPositionLanes)
      out[i] = FromCompute<T>(ComputeType<T>(0));
  }

 private:
  static constexpr int kPairs = kHeadSize / 2 / kPositionLanes;

  SIMT_DEVICE static int Pair(int j) { return GroupLane<kPositionLanes>() + j * kPositionLanes; }
  SIMT_DEVICE static C Element(const NormParameter<S>& norm, int i) {
    C value[1];
    norm.template Read<1>(i, value);
    return value[0];
  }

  const CachedAttentionArguments<S>& args_;
  int size_;
  int pairs_;
  C low_[kPairs], high_[kPairs];
  C cos_[kPairs] = {}, sin_[kPairs] = {};
  C low_weight_[kPairs] = {}, high_weight_[kPairs] = {};
};

/// Rows of the cache that the lanes of a block read, each its part of them. The rows of the first
/// steps come through shared memory, where the lanes need not wait for them.
template <typename S, int kHeadSize>
class CacheRows {
 public:
  using Part = RowPart<S, kHeadSize>;
  static constexpr int kKeys = kPositions<S, kHeadSize>;
  /// Shared memory for a step.
  static constexpr int kElements = kCachedAttentionThreads * 2 * kKeys * Part::kCount;

  /// Of positions from `first` of the cache on, of which those at `end` and behind are not there.
  SIMT_DEVICE CacheRows(const CachedAttentionArguments<S>& args, const Shared<S>& ahead,
                        std::int64_t cache_row, std::int64_t end)
      : args_(args),
        ahead_(ahead),
        keys_(args.keys + cache_row * args.head_size),
        values_(args.values + cache_row * args.head_size),
        end_(end),
        size_(static_cast<int>(args.head_size)) {}

  /// Asks for the lane's positions from s on, of this step.
  SIMT_DEVICE void Ask(int step, std::int64_t s) const {
    SIMT_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      SIMT_UNROLL
      for (int piece = 0; piece < Part::kPieces; ++piece) {
        const int x = Part::Position(piece);
        if (s + i >= end_ || x >= size_) continue;
        const std::int64_t at = (s + i) * args_.head_size + x;
        CopyAsync<Part::kVector>(ahead_, Slot(step, i, piece), keys_ + at);
        CopyAsync<Part::kVector>(ahead_, Slot(step, kKeys + i, piece), values_ + at);
      }
    }
  }

  /// The same positions, zeros where there is none. Those that were asked for have come.
  SIMT_DEVICE void Get(int step, std::int64_t s, Part (&keys)[kKeys], Part (&values)[kKeys]) const {
    SIMT_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      const int size = s + i < end_ ? size_ : 0;
      if (step >= args_.ahead) {
        keys[i].Read(keys_ + (s + i) * args_.head_size, size, args_.vector);
        values[i].Read(values_ + (s + i) * args_.head_size, size, args_.vector);
        continue;
      }
      SIMT_UNROLL
      for (int piece = 0; piece < Part::kPieces; ++piece) {
        keys[i].pieces[piece] = values[i].pieces[piece] = {};
        if (Part::Position(piece) >= size) continue;
        keys[i].pieces[piece] = At(step, i, piece);
        values[i].pieces[piece] = At(step, kKeys + i, piece);
      }
    }
  }

 private:
  SIMT_DEVICE static std::int64_t Slot(int step, int row, int piece) {
    const int vector = (step * 2 * kKeys + row) * Part::kPieces + piece;
    return (std::int64_t{vector} * kCachedAttentionThreads + ThreadIndex()) * Part::kVector;
  }
  SIMT_DEVICE Packed<S, Part::kVector> At(int step, int row, int piece) const {
    return Packed<S, Part::kVector>(ahead_.template Load<Part::kVector>(Slot(step, row, piece)));
  }

  const CachedAttentionArguments<S>& args_;
  Shared<S> ahead_;
  const S* keys_;
  const S* values_;
  std::int64_t end_;
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
