#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "backends/simt/kernels/attention/attention_heads.h"
#include "backends/simt/kernels/attention/attention_running.h"
#include "backends/simt/kernels/decode/cached_attention_parts.h"
#include "infini_train/ops/dispatch.h"

/// A query of each head against a cache whose length only the device knows. Many positions are
/// split over blocks, which leave partial results to a second kernel (Dao et al., "Flash-Decoding
/// for long-context inference", 2023). Every block prepares its queries itself; the one with the
/// new position prepares and keeps the new key and value.
namespace infini_train::simt {
namespace {

constexpr int kThreads = kCachedAttentionThreads;
/// Positions that a block takes in steps rather than that they are split over blocks.
constexpr int kMaxWholePositions = 1024;
constexpr int kMaxSplits = 64;

/// Query heads that meet a key on its way from memory, at most.
template <int kHeadSize>
inline constexpr int kHeads = kHeadSize <= 128 ? 4 : 2;
/// Positions that a block takes at once.
template <typename S, int kHeadSize>
inline constexpr int kStep = kThreads / kPositionLanes* kPositions<S, kHeadSize>;

/// Lanes of two blocks, or else of one, among which a multiprocessor's registers are shared out: a
/// block of one head leaves enough to blocks of the products in front of it and behind.
template <typename S, int kHeadSize, int kMaxHeads>
inline constexpr int kSharingLanes =
    kMaxHeads == 1 && kHeadSize <= 64 ? kThreads * 5 / 4 : kThreads;
template <typename S, int kHeadSize, int kMaxHeads>
inline constexpr int kResidentBlocks = sizeof(S) == 2 && kMaxHeads* kHeadSize <= 256 ? 2 : 1;

template <typename S>
using Arguments = CachedAttentionArguments<S>;

template <typename S, int kHeadSize, int kMaxHeads, bool kVector>
SIMT_KERNEL SIMT_RESIDENT(
    (kSharingLanes<S, kHeadSize, kMaxHeads>),
    (kResidentBlocks<S, kHeadSize, kMaxHeads>)) void CachedAttentionKernel(Arguments<S> args) {
  using C = ComputeType<S>;
  using Part = RowPart<S, kHeadSize>;
  using Rows = CacheRows<S, kHeadSize, kVector>;
  using Results = BlockSoftmax<S, kHeadSize, kThreads / kGroupWidth>;
  constexpr int kKeys = Rows::kKeys;
  constexpr int kPositionsAtOnce = kStep<S, kHeadSize>;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  SIMT_SHARED(C, queries, kMaxHeads * kHeadSize);
  SIMT_SHARED(S, fresh, 2 * kHeadSize);  // the new key and value
  SIMT_SHARED(C, memory, kMaxHeads * Results::kElements);
  args.NameEarlyReads();
  LetLaterBegin();

  const int size = args.head_size;
  const int group = ThreadIndex() / kGroupWidth;
  const Shared<S> new_key = fresh.Sub(0, kHeadSize);
  const Shared<S> new_value = fresh.Sub(kHeadSize, kHeadSize);
  const auto block = static_cast<std::uint32_t>(BlockIndex());
  const auto kv_head = static_cast<int>(args.by_parts.Quotient(block));
  const int part = static_cast<int>(block) - kv_head * args.parts;
  const int first_head = kv_head * args.group + part * kMaxHeads;
  const int block_heads = Min(args.group - part * kMaxHeads, kMaxHeads);
  const auto split = static_cast<int>(BlockIndexY());
  for (auto b = static_cast<int>(BlockIndexZ()); b < args.batch;
       b += static_cast<int>(GridSizeZ())) {
    const int length = args.LengthOf(b);
    const int seen = args.FirstSeen(length);
    // The positions of a split, multiples of what a block takes at once.
    const auto most = static_cast<int>(
        args.by_splits.Quotient(static_cast<std::uint32_t>(length + args.splits - seen)));
    const int share = (most + kPositionsAtOnce - 1) / kPositionsAtOnce * kPositionsAtOnce;
    const int begin = seen + split * share;
    const int end = Min(begin + share, length + 1);
    const bool is_last = length >= 0 && begin <= length && length < begin + share;
    const std::int64_t cache_row = (std::int64_t{b} * args.kv_heads + kv_head) * args.capacity;
    const Rows rows(args, cache_row, Min(end, length));
    int s = begin + ThreadIndex() / kPositionLanes * kKeys;
    Part keys[kKeys], values[kKeys];
    rows.Read(s, keys, values);
    for (int later = s + kPositionsAtOnce; later < end; later += kPositionsAtOnce)
      rows.Ask(later);
    // A group each for the queries, the new key and the new value.
    const bool is_query = group < block_heads && begin < end;
    const bool is_key = group == kMaxHeads && is_last;
    const bool is_value = group == kMaxHeads + 1 && is_last;
    HeadPart<S, kHeadSize> head(args);
    if (is_query || is_key) head.ReadFactors(is_key ? args.key_norm : args.query_norm, length);

    WaitForEarlier();
    const S* const row = args.qkv + std::int64_t{b} * (args.heads + 2 * args.kv_heads) * size;
    const int row_head = is_query ? first_head + group
                         : is_key ? args.heads + kv_head
                                  : args.heads + args.kv_heads + kv_head;
    if (is_query || is_key || is_value) head.Read(row + row_head * size);
    if (is_query || is_key) head.Prepare();
    if (is_query) head.Write(queries.Sub(group * kHeadSize, kHeadSize));
    if (is_key || is_value) head.Write(fresh.Sub(is_key ? 0 : kHeadSize, kHeadSize));
    SyncBlock();

    if (is_last && part == 0) {
      for (int i = ThreadIndex(); i < size; i += kThreads) {
        const S key = new_key[i];
        const S value = new_value[i];
        Store(args.keys + (cache_row + length) * size + i, key);
        Store(args.values + (cache_row + length) * size + i, value);
      }
    }
    RunningSoftmax<S, kHeadSize> running[kMaxHeads];
    for (int left = end - begin; TakesAny<kKeys>(left); left -= kPositionsAtOnce) {
      C factors[kKeys];
      SIMT_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        factors[i] = C(1);
        if (s + i != length) continue;
        keys[i].Read(new_key);
        values[i].Read(new_value);
      }
      SIMT_UNROLL
      for (int h = 0; h < kMaxHeads; ++h) {
        if (h >= block_heads) continue;
        C query[Part::kCount];
        ReadQuery<S, kHeadSize>(queries.Sub(h * kHeadSize, kHeadSize), query);
        Vec<C, kKeys> scores = Scores<S, kHeadSize>(query, keys);
        SIMT_UNROLL
        for (int i = 0; i < kKeys; ++i)
          scores[i] = s + i < end ? scores[i] * args.scale : -kInfinity;
        running[h].Add(scores, values, factors);
      }
      s += kPositionsAtOnce;
      if (left > kPositionsAtOnce) rows.Read(s, keys, values);
    }

    SIMT_UNROLL
    for (int h = 0; h < kMaxHeads; ++h) {
      if (h < block_heads)
        Results(memory.Sub(h * Results::kElements, Results::kElements)).Put(running[h]);
    }
    SyncBlock();
    for (int i = ThreadIndex(); i < block_heads * kHeadSize; i += kThreads) {
      const int h = i / kHeadSize;
      const int x = i % kHeadSize;
      if (x >= size) continue;
      const Results results(memory.Sub(h * Results::kElements, Results::kElements));
      const auto merged = results.Merge();
      const C sum = results.Sum(merged, x);
      const int head_row = b * args.heads + first_head + h;
      if (args.splits == 1) {
        Store(args.out + std::int64_t{head_row} * size + x, args.Finish(sum, merged.total, length));
        continue;
      }
      const std::int64_t at = std::int64_t{head_row} * args.splits + split;
      Store(args.partial_sums + at * size + x, sum);
      if (x > 0) continue;
      Store(args.partial_max + at, merged.max);
      Store(args.partial_totals + at, merged.total);
    }
    if (b + GridSizeZ() < args.batch) SyncBlock();
  }
}

/// A block for each head of each sequence adds what its splits found.
template <typename S>
SIMT_KERNEL void CombineSplitsKernel(Arguments<S> args) {
  using C = ComputeType<S>;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  LetLaterBegin();
  WaitForEarlier();
  for (std::int64_t row = BlockIndex(); row < std::int64_t{args.batch} * args.heads;
       row += GridSize()) {
    const C* const maxima = args.partial_max + row * args.splits;
    const C* const totals = args.partial_totals + row * args.splits;
    const C* const sums = args.partial_sums + row * args.splits * args.head_size;
    C max = -kInfinity;
    for (int split = 0; split < args.splits; ++split) {
      const C value = Load(maxima + split);
      if (value > max) max = value;
    }
    const int length = args.LengthOf(static_cast<int>(row / args.heads));
    const ShiftedExponential<S> exponential(max);
    for (int x = ThreadIndex(); x < args.head_size; x += BlockSize()) {
      C total = 0;
      C sum = 0;
      for (int split = 0; split < args.splits; ++split) {
        const C weight = exponential(Load(maxima + split));
        total += weight * Load(totals + split);
        sum += weight * Load(sums + std::int64_t{split} * args.head_size + x);
      }
      Store(args.out + row * args.head_size + x, args.Finish(sum, total, length));
    }
  }
}

template <typename S, int kHeadSize, int kMaxHeads, bool kVector>
void LaunchParts(const Context& context, Arguments<S> args) {
  using C = ComputeType<S>;
  const std::int64_t rows = std::int64_t{args.batch} * args.heads;
  Tensor partials;
  if (args.splits > 1) {
    const std::int64_t results = rows * args.splits;
    partials = Tensor::Empty(Dims{results * (args.head_size + 2)}, DataTypeOf<C>(), context.device);
    args.partial_sums = partials.data<C>();
    args.partial_max = args.partial_sums + results * args.head_size;
    args.partial_totals = args.partial_max + results;
  }
  args.by_parts = Divider::By(static_cast<std::uint32_t>(args.parts));
  args.by_splits = Divider::By(static_cast<std::uint32_t>(args.splits));
  const Geometry geometry{.grid_x = std::int64_t{args.kv_heads} * args.parts,
                          .grid_y = args.splits,
                          .grid_z = std::min<std::int64_t>(args.batch, kMaxGridYZ),
                          .block = kThreads,
                          .begins_early = true};
  Launch(context, geometry, &CachedAttentionKernel<S, kHeadSize, kMaxHeads, kVector>, args);
  if (args.splits == 1) return;
  Geometry combine = Rows(rows, args.head_size <= 64 ? 64 : 128);
  combine.begins_early = true;
  Launch(context, combine, &CombineSplitsKernel<S>, args);
}

/// Launches the kernels for heads of up to kHeadSize; `vector` promises whole vectors.
template <int kHeadSize, typename S>
void LaunchHeads(const Context& context, Arguments<S> args, bool vector) {
  constexpr int kAll = kHeads<kHeadSize>;
  const std::int64_t processors = MultiprocessorCount(context);
  // Few positions are split by heads alone, which needs no second launch, and only as far as there
  // are multiprocessors, since a key then comes from a cache once for each head.
  const bool whole = args.positions <= kMaxWholePositions;
  const bool by_heads = vector && whole && std::int64_t{args.heads} * args.batch <= processors;
  args.parts = by_heads ? args.group : (args.group + kAll - 1) / kAll;
  const std::int64_t blocks = std::int64_t{args.parts} * args.kv_heads * args.batch;
  const std::int64_t steps = (args.positions + kStep<S, kHeadSize> - 1) / kStep<S, kHeadSize>;
  args.splits = static_cast<int>(
      whole ? 1 : std::clamp<std::int64_t>(std::min(processors / blocks, steps), 1, kMaxSplits));
  if (by_heads) {
    LaunchParts<S, kHeadSize, 1, true>(context, args);
  } else if (vector) {
    LaunchParts<S, kHeadSize, kAll, true>(context, args);
  } else {
    LaunchParts<S, kHeadSize, kAll, false>(context, args);
  }
}

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
    args.batch = static_cast<int>(qkv.size(0));
    args.heads = static_cast<int>(out.size(1) / head_size);
    args.kv_heads = static_cast<int>(keys.size(1));
    args.group = args.heads / args.kv_heads;
    args.head_size = static_cast<int>(head_size);
    args.capacity = static_cast<int>(keys.size(2));
    args.positions =
        static_cast<int>(cos.defined() ? std::min(cos.size(0), keys.size(2)) : keys.size(2));
    args.window = static_cast<int>(std::min<std::int64_t>(params.sliding_window, keys.size(2)));
    args.out = out.data<S>();
    args.keys = keys.data<S>();
    args.values = values.data<S>();
    args.qkv = qkv.data<S>();
    args.lengths = lengths.data<std::int32_t>();
    if (cos.defined()) {
      args.cos = cos.data<C>();
      args.sin = sin.data<C>();
      args.cos_row = static_cast<int>(cos.strides()[0]);
      args.sin_row = static_cast<int>(sin.strides()[0]);
      args.normalizes = query_norm.defined();
    }
    args.query_norm = NormParameter<S>::Of(query_norm, 1);
    args.key_norm = NormParameter<S>::Of(key_norm, 1);
    args.eps = static_cast<C>(norm_eps);
    args.scale = static_cast<C>(params.scale);
    args.inverse_size = static_cast<C>(1.0 / static_cast<double>(head_size));
    const bool vector = HasVectorRows<S>(head_size, {&keys, &values});
    DispatchHeadSize(
        head_size, [&](auto bound) { LaunchHeads<decltype(bound)::value>(context, args, vector); });
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(CachedAttention, &CachedAttention);

}  // namespace infini_train::simt
