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

/// A head of the projection on its way to shared memory: the elements of a lane of its group, in
/// pairs that lie half a head apart, all of which are under way before the first is used.
template <typename S, int kHeadSize>
struct HeadPart {
  using C = ComputeType<S>;
  static constexpr int kPairs = kHeadSize / 2 / kGroup;
  C low[kPairs];
  C high[kPairs];

  SIMT_DEVICE static int Pair(int j) { return GroupLane<kGroup>() + j * kGroup; }

  /// Pairs of a head of odd size lack one.
  SIMT_DEVICE void Read(const S* x, int size) {
    const int pairs = (size + 1) / 2;
    SIMT_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      const int p = Pair(j);
      low[j] = p < pairs ? ToCompute(Load(x + p)) : C(0);
      high[j] = p < pairs && p + pairs < size ? ToCompute(Load(x + p + pairs)) : C(0);
    }
  }

  /// Normalised, rotated to `position`, and rounded as it would be in memory.
  SIMT_DEVICE void Prepare(const NormParameter<S>& norm, std::int64_t position,
                           const Arguments<S>& args) {
    if (args.cos == nullptr) return;
    const int pairs = static_cast<int>(args.head_size) / 2;
    C cos[kPairs], sin[kPairs];
    SIMT_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      const int p = Pair(j);
      cos[j] = p < pairs ? Load(args.cos + position * args.cos_row + p) : C(0);
      sin[j] = p < pairs ? Load(args.sin + position * args.sin_row + p) : C(0);
    }
    if (args.normalizes) {
      C sum = 0;
      SIMT_UNROLL
      for (int j = 0; j < kPairs; ++j)
        sum += low[j] * low[j] + high[j] * high[j];
      sum = ReduceGroup<kGroup>(sum, SumOp{});
      const C rstd = C(1) / Sqrt(sum / static_cast<C>(args.head_size) + args.eps);
      SIMT_UNROLL
      for (int j = 0; j < kPairs; ++j) {
        const int p = Pair(j);
        if (p >= pairs) continue;
        C w[1];
        norm.template Read<1>(p, w);
        low[j] *= rstd * w[0];
        norm.template Read<1>(p + pairs, w);
        high[j] *= rstd * w[0];
      }
    }
    SIMT_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      const C first = low[j] * cos[j] - high[j] * sin[j];
      high[j] = ToCompute(FromCompute<S>(low[j] * sin[j] + high[j] * cos[j]));
      low[j] = ToCompute(FromCompute<S>(first));
    }
  }

  SIMT_DEVICE void Write(const Shared<C>& out, int size) const {
    const int pairs = (size + 1) / 2;
    SIMT_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      const int p = Pair(j);
      if (p < pairs) out[p] = low[j];
      if (p < pairs && p + pairs < size) out[p + pairs] = high[j];
    }
  }
};

/// The lane's part of a position's key or value, zeros at `end` and behind: `row` of the cache, or
/// what has just come to be position `length`.
template <typename S, int kHeadSize>
SIMT_DEVICE void ReadPosition(RowPart<S, kHeadSize>& part, const S* cache, std::int64_t row,
                              const Shared<ComputeType<S>>& fresh, std::int64_t position,
                              std::int64_t length, std::int64_t end, const Arguments<S>& args) {
  if (position == length) {
    part.Read(fresh, args.head_size);
  } else {
    part.Read(cache + row * args.head_size, position < end ? args.head_size : 0, args.vector);
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
    // A group each for the queries, the new key and the new value.
    const S* const row = args.qkv + b * (args.heads + 2 * args.kv_heads) * args.head_size;
    const bool is_query = group < block_heads;
    const bool is_key = group == kMaxHeads;
    const bool is_value = group == kMaxHeads + 1;
    HeadPart<S, kHeadSize> head;
    if (is_query) head.Read(row + (first_head + group) * args.head_size, size);
    if (is_key) head.Read(row + (args.heads + kv_head) * args.head_size, size);
    if (is_value) head.Read(row + (args.heads + args.kv_heads + kv_head) * args.head_size, size);
    const std::int64_t length = args.LengthOf(b);
    const std::int64_t seen = args.FirstSeen(length);
    // The positions of a split, multiples of what a block takes at once.
    constexpr std::int64_t kStep = kGroups * kKeys;
    const std::int64_t share =
        ((length + 1 - seen + args.splits - 1) / args.splits + kStep - 1) / kStep * kStep;
    const std::int64_t begin = seen + split * share;
    const std::int64_t end = Min<std::int64_t>(begin + share, length + 1);
    const bool is_last = length >= 0 && begin <= length && length < begin + share;

    const Shared<C> new_key = heads.Sub(kMaxHeads * kHeadSize, kHeadSize);
    const Shared<C> new_value = heads.Sub((kMaxHeads + 1) * kHeadSize, kHeadSize);
    if (begin < end && is_query) {
      head.Prepare(args.query_norm, length, args);
      head.Write(heads.Sub(group * kHeadSize, kHeadSize), size);
    }
    if (is_last && is_key) {
      head.Prepare(args.key_norm, length, args);
      head.Write(new_key, size);
    }
    if (is_last && is_value) head.Write(new_value, size);
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
      // Of small heads the values come beside the keys.
      constexpr bool kTogether = kHeadSize <= 64;
      const std::int64_t position = cache_row + s;
      Part part_keys[kKeys];
      Part part_values[kKeys];
      SIMT_UNROLL
      for (int i = 0; i < kKeys; ++i)
        ReadPosition(part_keys[i], args.keys, position + i, new_key, s + i, length, end, args);
      SIMT_UNROLL
      for (int i = 0; kTogether && i < kKeys; ++i)
        ReadPosition(part_values[i], args.values, position + i, new_value, s + i, length, end,
                     args);
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
      for (int i = 0; !kTogether && i < kKeys; ++i)
        ReadPosition(part_values[i], args.values, position + i, new_value, s + i, length, end,
                     args);
      SIMT_UNROLL
      for (int h = 0; h < kMaxHeads; ++h)
        running[h].Add(scores[h], part_values);
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
