#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "backends/simt/kernels/attention/attention_heads.h"
#include "backends/simt/kernels/attention/attention_tile.h"
#include "backends/simt/kernels/norm/norm_row.h"
#include "infini_train/ops/dispatch.h"

/// A query of each head against a cache whose length only the device knows. Positions are split
/// over blocks, which leave partial results to a second kernel (Dao et al., "Flash-Decoding for
/// long-context inference", 2023). Every block prepares its queries itself; the one with the new
/// position prepares and keeps the new key and value.
namespace infini_train::simt {
namespace {

constexpr int kThreads = 128;
constexpr int kGroup = 8;  // lanes that share a position, a logical group
constexpr int kGroups = kThreads / kGroup;
constexpr int kKeys = 4;  // positions that a group takes at once

/// Query heads that meet a key on its way from memory.
template <int kHeadSize>
inline constexpr int kHeads = kHeadSize <= 128 ? 4 : 2;

template <typename S>
struct Arguments {
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
  bool vector;

  SIMT_HOST_DEVICE std::int64_t group() const { return heads / kv_heads; }
  /// Of sequence b; -1 where it has no place.
  SIMT_DEVICE std::int64_t LengthOf(std::int64_t b) const {
    const std::int64_t length = Load(lengths + b);
    return length >= 0 && length < positions ? length : -1;
  }
  /// The first position that is seen, of those up to `length`.
  SIMT_DEVICE std::int64_t FirstSeen(std::int64_t length) const {
    return window > 0 && length + 1 > window ? length + 1 - window : 0;
  }
};

/// A lane's elements of a row of up to kHeadSize: every kGroup-th vector. Those beyond are 0.
template <typename S, int kHeadSize>
struct RowPart {
  using C = ComputeType<S>;
  static constexpr int kVector = kMaxVectorWidth<S>;
  static constexpr int kPieces = kHeadSize / (kGroup * kVector);
  static constexpr int kCount = kPieces * kVector;

  SIMT_DEVICE static int Position(int piece) {
    return (piece * kGroup + GroupLane<kGroup>()) * kVector;
  }

  SIMT_DEVICE void Read(const S* row, std::int64_t size, bool vector) {
    SIMT_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) {
      const int x = Position(piece);
      C numbers[kVector] = {};
      if (vector && x < size) {
        Packed<S, kVector>::Of(row + x).Widen(numbers);
      } else {
        SIMT_UNROLL
        for (int i = 0; i < kVector; ++i) {
          if (x + i < size) numbers[i] = ToCompute(Load(row + x + i));
        }
      }
      SIMT_UNROLL
      for (int i = 0; i < kVector; ++i)
        v[piece * kVector + i] = numbers[i];
    }
  }
  SIMT_DEVICE void Read(const Shared<C>& row, std::int64_t size) {
    SIMT_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) {
      SIMT_UNROLL
      for (int i = 0; i < kVector; ++i) {
        const int x = Position(piece) + i;
        C number = 0;
        if (x < size) number = row[x];
        v[piece * kVector + i] = number;
      }
    }
  }

  C v[kCount];
};

/// A group's running softmax of one head.
template <typename S, int kHeadSize>
struct Running {
  using C = ComputeType<S>;
  using Part = RowPart<S, kHeadSize>;
  C max = -std::numeric_limits<C>::infinity();
  C total = 0;
  C sums[Part::kCount] = {};

  /// Takes positions with these scores, -inf for none.
  SIMT_DEVICE void Add(const Vec<C, kKeys>& scores, const Part (&values)[kKeys]) {
    C new_max = max;
    SIMT_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      if (scores[i] > new_max) new_max = scores[i];
    }
    const C shift = new_max == -std::numeric_limits<C>::infinity() ? C(0) : new_max;
    const C alpha = Exp(max - shift);
    max = new_max;
    total *= alpha;
    C weights[kKeys];
    SIMT_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      weights[i] = Exp(scores[i] - shift);
      total += weights[i];
    }
    SIMT_UNROLL
    for (int x = 0; x < Part::kCount; ++x) {
      C sum = sums[x] * alpha;
      SIMT_UNROLL
      for (int i = 0; i < kKeys; ++i)
        sum += weights[i] * values[i].v[x];
      sums[x] = sum;
    }
  }
};

/// A group's work: a head of the projection, normalised, rotated to `position` and rounded as it
/// would be in memory.
template <typename S>
SIMT_DEVICE void PrepareHead(const Shared<ComputeType<S>>& out, const S* x,
                             const NormParameter<S>& norm, std::int64_t position,
                             const Arguments<S>& args) {
  using C = ComputeType<S>;
  const int size = static_cast<int>(args.head_size);
  const int pairs = size / 2;
  const int lane = GroupLane<kGroup>();
  C rstd = 1;
  if (args.normalizes) {
    C sum = 0;
    for (int i = lane; i < size; i += kGroup) {
      const C value = ToCompute(Load(x + i));
      sum += value * value;
    }
    rstd = C(1) / Sqrt(ReduceGroup<kGroup>(sum, SumOp{}) / static_cast<C>(size) + args.eps);
  }
  if (args.cos == nullptr) {
    for (int i = lane; i < size; i += kGroup)
      out[i] = ToCompute(Load(x + i));
    return;
  }
  for (int p = lane; p < pairs; p += kGroup) {
    C low = ToCompute(Load(x + p));
    C high = ToCompute(Load(x + p + pairs));
    if (args.normalizes) {
      C w[1];
      norm.template Read<1>(p, w);
      low *= rstd * w[0];
      norm.template Read<1>(p + pairs, w);
      high *= rstd * w[0];
    }
    const C cos = Load(args.cos + position * args.cos_row + p);
    const C sin = Load(args.sin + position * args.sin_row + p);
    out[p] = ToCompute(FromCompute<S>(low * cos - high * sin));
    out[p + pairs] = ToCompute(FromCompute<S>(low * sin + high * cos));
  }
}

template <typename S, int kHeadSize>
SIMT_KERNEL void CachedAttentionKernel(Arguments<S> args) {
  using C = ComputeType<S>;
  using Part = RowPart<S, kHeadSize>;
  constexpr int kMaxHeads = kHeads<kHeadSize>;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  SIMT_SHARED(C, heads, (kMaxHeads + 2) * kHeadSize);  // queries, the new key, the new value
  SIMT_SHARED(C, group_sums, kGroups * kHeadSize);
  SIMT_SHARED(C, group_max, kGroups);
  SIMT_SHARED(C, group_totals, kGroups);

  const int size = static_cast<int>(args.head_size);
  const int group = ThreadIndex() / kGroup;
  const std::int64_t head_parts = (args.group() + kMaxHeads - 1) / kMaxHeads;
  const std::int64_t count = args.batch * args.kv_heads * head_parts * args.splits;
  for (std::int64_t block = BlockIndex(); block < count; block += GridSize()) {
    const std::int64_t split = block % args.splits;
    const std::int64_t part = block / args.splits % head_parts;
    const std::int64_t kv_head = block / args.splits / head_parts % args.kv_heads;
    const std::int64_t b = block / args.splits / head_parts / args.kv_heads;
    const std::int64_t first_head = kv_head * args.group() + part * kMaxHeads;
    const int block_heads =
        static_cast<int>(Min<std::int64_t>(args.group() - part * kMaxHeads, kMaxHeads));
    const std::int64_t length = args.LengthOf(b);
    const std::int64_t seen = args.FirstSeen(length);
    // The positions of a split, multiples of what a block takes at once.
    constexpr std::int64_t kStep = kGroups * kKeys;
    const std::int64_t share =
        ((length + 1 - seen + args.splits - 1) / args.splits + kStep - 1) / kStep * kStep;
    const std::int64_t begin = seen + split * share;
    const std::int64_t end = Min<std::int64_t>(begin + share, length + 1);
    const bool is_last = length >= 0 && begin <= length && length < begin + share;

    const S* const row = args.qkv + b * (args.heads + 2 * args.kv_heads) * args.head_size;
    const Shared<C> new_key = heads.Sub(kMaxHeads * kHeadSize, kHeadSize);
    const Shared<C> new_value = heads.Sub((kMaxHeads + 1) * kHeadSize, kHeadSize);
    if (begin < end && group < block_heads) {
      PrepareHead<S>(heads.Sub(group * kHeadSize, kHeadSize),
                     row + (first_head + group) * args.head_size, args.query_norm, length, args);
    }
    if (is_last && group == kMaxHeads) {
      PrepareHead<S>(new_key, row + (args.heads + kv_head) * args.head_size, args.key_norm, length,
                     args);
    }
    if (is_last && group == kMaxHeads + 1) {
      const S* const value = row + (args.heads + args.kv_heads + kv_head) * args.head_size;
      for (int i = GroupLane<kGroup>(); i < size; i += kGroup)
        new_value[i] = ToCompute(Load(value + i));
    }
    SyncBlock();

    const std::int64_t cache_row = (b * args.kv_heads + kv_head) * args.capacity;
    if (is_last && part == 0) {
      for (int i = ThreadIndex(); i < size; i += kThreads) {
        const C key = new_key[i];
        const C value = new_value[i];
        Store(args.keys + (cache_row + length) * args.head_size + i, FromCompute<S>(key));
        Store(args.values + (cache_row + length) * args.head_size + i, FromCompute<S>(value));
      }
    }
    Part queries[kMaxHeads];
    SIMT_UNROLL
    for (int h = 0; h < kMaxHeads; ++h)
      queries[h].Read(heads.Sub(h * kHeadSize, kHeadSize),
                      h < block_heads && begin < end ? size : 0);
    Running<S, kHeadSize> running[kMaxHeads];
    for (std::int64_t s = begin + group * kKeys; s < end; s += kStep) {
      Part part_keys[kKeys];
      SIMT_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        if (s + i == length) {
          part_keys[i].Read(new_key, size);
        } else {
          part_keys[i].Read(args.keys + (cache_row + s + i) * args.head_size,
                            s + i < end ? size : 0, args.vector);
        }
      }
      Vec<C, kKeys> scores[kMaxHeads];
      SIMT_UNROLL
      for (int h = 0; h < kMaxHeads; ++h) {
        SIMT_UNROLL
        for (int i = 0; i < kKeys; ++i) {
          C score = 0;
          SIMT_UNROLL
          for (int x = 0; x < Part::kCount; ++x)
            score += queries[h].v[x] * part_keys[i].v[x];
          scores[h][i] = score;
        }
        scores[h] = ReduceGroup<kGroup>(scores[h], RowSum());
        SIMT_UNROLL
        for (int i = 0; i < kKeys; ++i)
          scores[h][i] = s + i < end ? scores[h][i] * args.scale : -kInfinity;
      }
      SIMT_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        if (s + i == length) {
          part_keys[i].Read(new_value, size);
        } else {
          part_keys[i].Read(args.values + (cache_row + s + i) * args.head_size,
                            s + i < end ? size : 0, args.vector);
        }
      }
      SIMT_UNROLL
      for (int h = 0; h < kMaxHeads; ++h)
        running[h].Add(scores[h], part_keys);
    }

    SIMT_UNROLL
    for (int h = 0; h < kMaxHeads; ++h) {
      SIMT_UNROLL
      for (int piece = 0; piece < Part::kPieces; ++piece) {
        SIMT_UNROLL
        for (int i = 0; i < Part::kVector; ++i)
          group_sums[group * kHeadSize + Part::Position(piece) + i] =
              running[h].sums[piece * Part::kVector + i];
      }
      if (GroupLane<kGroup>() == 0) {
        group_max[group] = running[h].max;
        group_totals[group] = running[h].total;
      }
      SyncBlock();
      C max = -kInfinity;
      C weights[kGroups];
      SIMT_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        weights[g] = group_max[g];
        if (weights[g] > max) max = weights[g];
      }
      C total = 0;
      SIMT_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        const C group_total = group_totals[g];
        weights[g] = Exp(weights[g] - (max == -kInfinity ? C(0) : max));
        total += group_total * weights[g];
      }
      const std::int64_t at = (b * args.heads + first_head + h) * args.splits + split;
      if (h < block_heads) {
        for (int x = ThreadIndex(); x < size; x += kThreads) {
          C sum = 0;
          SIMT_UNROLL
          for (int g = 0; g < kGroups; ++g) {
            const C group_sum = group_sums[g * kHeadSize + x];
            sum += group_sum * weights[g];
          }
          Store(args.partial_sums + at * args.head_size + x, sum);
        }
        if (ThreadIndex() == 0) {
          Store(args.partial_max + at, max);
          Store(args.partial_totals + at, total);
        }
      }
      SyncBlock();
    }
  }
}

/// A block for each head of each sequence adds what its splits found.
template <typename S>
SIMT_KERNEL void CombineSplitsKernel(Arguments<S> args) {
  using C = ComputeType<S>;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  for (std::int64_t row = BlockIndex(); row < args.batch * args.heads; row += GridSize()) {
    const C* const maxima = args.partial_max + row * args.splits;
    const C* const totals = args.partial_totals + row * args.splits;
    const C* const sums = args.partial_sums + row * args.splits * args.head_size;
    C max = -kInfinity;
    for (std::int64_t split = 0; split < args.splits; ++split) {
      const C value = Load(maxima + split);
      if (value > max) max = value;
    }
    const bool has_place = args.LengthOf(row / args.heads) >= 0;
    for (std::int64_t x = ThreadIndex(); x < args.head_size; x += BlockSize()) {
      C total = 0;
      C sum = 0;
      for (std::int64_t split = 0; split < args.splits; ++split) {
        const C weight = Exp(Load(maxima + split) - max);
        total += weight * Load(totals + split);
        sum += weight * Load(sums + split * args.head_size + x);
      }
      Store(args.out + row * args.head_size + x,
            FromCompute<S>(has_place ? sum / total : std::numeric_limits<C>::quiet_NaN()));
    }
  }
}

/// Blocks that a large device has room for, and positions that are worth one.
constexpr std::int64_t kMaxBlocks = 512;
constexpr std::int64_t kMaxSplits = 64;
constexpr std::int64_t kMinSplitPositions = 64;

void CachedAttention(const Context& context, Tensor& out, Tensor& keys, Tensor& values,
                     const Tensor& qkv, const Tensor& lengths, const Tensor& cos, const Tensor& sin,
                     const Tensor& query_norm, const Tensor& key_norm, double norm_eps,
                     const AttentionParams& params) {
  if (out.numel() == 0) return;
  const std::int64_t head_size = keys.size(3);
  if (head_size > kMaxHeadSize) {
    throw Error("CachedAttention: expected a head size of at most " + std::to_string(kMaxHeadSize) +
                ", got " + std::to_string(head_size));
  }
  DispatchFloating("CachedAttention", qkv.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using C = ComputeType<S>;
    Arguments<S> args{};
    args.batch = qkv.size(0);
    args.heads = out.size(1) / head_size;
    args.kv_heads = keys.size(1);
    args.head_size = head_size;
    args.capacity = keys.size(2);
    args.positions = cos.defined() ? std::min(cos.size(0), args.capacity) : args.capacity;
    args.window = params.sliding_window;
    args.out = out.data<S>();
    args.keys = keys.data<S>();
    args.values = values.data<S>();
    args.qkv = qkv.data<S>();
    args.lengths = lengths.data<std::int32_t>();
    if (cos.defined()) {
      args.cos = cos.data<C>();
      args.sin = sin.data<C>();
      args.cos_row = cos.strides()[0];
      args.sin_row = sin.strides()[0];
      args.normalizes = query_norm.defined();
    }
    args.query_norm = NormParameter<S>::Of(query_norm, 1);
    args.key_norm = NormParameter<S>::Of(key_norm, 1);
    args.eps = static_cast<C>(norm_eps);
    args.scale = static_cast<C>(params.scale);
    args.vector = HasVectorRows<S>(head_size, {&keys, &values});
    DispatchHeadSize(head_size, [&](auto bound) {
      constexpr int kBound = decltype(bound)::value;
      const std::int64_t parts =
          (args.group() + kHeads<kBound> - 1) / kHeads<kBound> * args.kv_heads * args.batch;
      args.splits = std::clamp<std::int64_t>(
          std::min(kMaxBlocks / parts,
                   (args.positions + kMinSplitPositions - 1) / kMinSplitPositions),
          1, kMaxSplits);
      const std::int64_t results = args.batch * args.heads * args.splits;
      const Tensor partials =
          Tensor::Empty({results * (head_size + 2)}, DataTypeOf<C>(), context.device);
      args.partial_sums = partials.data<C>();
      args.partial_max = args.partial_sums + results * head_size;
      args.partial_totals = args.partial_max + results;
      Launch(context, Rows(parts * args.splits, kThreads), &CachedAttentionKernel<S, kBound>, args);
      Launch(context, Rows(args.batch * args.heads, head_size <= 64 ? 64 : 128),
             &CombineSplitsKernel<S>, args);
    });
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(CachedAttention, &CachedAttention);

}  // namespace infini_train::simt
