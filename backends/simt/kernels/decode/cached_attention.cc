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
/// Keys and values that a block asks for before the launch in front of it has ended: less than half
/// of a multiprocessor's memory, so that the products in front and behind have room beside it.
constexpr std::size_t kMaxAheadBytes = std::size_t{96} << 10;
/// Positions that a block takes in steps rather than that they are split over blocks.
constexpr std::int64_t kMaxWholePositions = 1024;

/// Query heads that meet a key on its way from memory, at most.
template <int kHeadSize>
inline constexpr int kHeads = kHeadSize <= 128 ? 4 : 2;
/// Positions that a block takes at once.
template <typename S, int kHeadSize>
inline constexpr int kStep = kThreads / kPositionLanes* kPositions<S, kHeadSize>;

/// Half of a multiprocessor's registers, so that blocks begin beside those of the product in front
/// of them; more where a lane's part of the heads takes more.
template <typename S, int kHeadSize, int kMaxHeads>
inline constexpr int kResidentBlocks = kHeadSize <= 128 && kMaxHeads* kHeadSize <= 256 &&
                                               sizeof(S) == 2
                                           ? 2
                                           : 1;

template <typename S>
using Arguments = CachedAttentionArguments<S>;

template <typename S, int kHeadSize, int kMaxHeads>
SIMT_KERNEL SIMT_RESIDENT(
    kThreads,
    (kResidentBlocks<S, kHeadSize, kMaxHeads>)) void CachedAttentionKernel(Arguments<S> args) {
  using C = ComputeType<S>;
  using Part = RowPart<S, kHeadSize>;
  using Results = BlockSoftmax<S, kHeadSize, kThreads / kGroupWidth>;
  constexpr int kKeys = kPositions<S, kHeadSize>;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  SIMT_DYNAMIC_SHARED(S, ahead);
  SIMT_SHARED(C, queries, kMaxHeads * kHeadSize);
  SIMT_SHARED(S, fresh, 2 * kHeadSize);  // the new key and value
  SIMT_SHARED(C, memory, kMaxHeads * Results::kElements);
  args.NameEarlyReads();

  const int size = static_cast<int>(args.head_size);
  const int group = ThreadIndex() / kPositionLanes;
  const Shared<S> new_key = fresh.Sub(0, kHeadSize);
  const Shared<S> new_value = fresh.Sub(kHeadSize, kHeadSize);
  const std::int64_t head_parts = args.HeadParts(kMaxHeads);
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
    const std::int64_t share =
        ((length + 1 - seen + args.splits - 1) / args.splits + kStep<S, kHeadSize> - 1) /
        kStep<S, kHeadSize> * kStep<S, kHeadSize>;
    const std::int64_t begin = seen + split * share;
    const std::int64_t end = Min<std::int64_t>(begin + share, length + 1);
    const bool is_last = length >= 0 && begin <= length && length < begin + share;
    const std::int64_t first = begin + group * kKeys;
    const std::int64_t cache_row = (b * args.kv_heads + kv_head) * args.capacity;
    const CacheRows<S, kHeadSize> rows(args, ahead, cache_row, Min(end, length));
    for (int step = 0; step < args.ahead; ++step)
      rows.Ask(step, first + step * kStep<S, kHeadSize>);
    CommitCopies();
    // A group each for the queries, the new key and the new value.
    const bool is_query = group < block_heads && begin < end;
    const bool is_key = group == kMaxHeads && is_last;
    const bool is_value = group == kMaxHeads + 1 && is_last;
    HeadPart<S, kHeadSize> head(args);
    if (is_query) head.ReadFactors(args.query_norm, length);
    if (is_key) head.ReadFactors(args.key_norm, length);

    WaitForEarlier();
    const S* const row = args.qkv + b * (args.heads + 2 * args.kv_heads) * args.head_size;
    if (is_query) head.Read(row + (first_head + group) * args.head_size);
    if (is_key) head.Read(row + (args.heads + kv_head) * args.head_size);
    if (is_value) head.Read(row + (args.heads + args.kv_heads + kv_head) * args.head_size);
    LetLaterBegin();
    if (is_query || is_key) head.Prepare();
    if (is_query) head.Write(queries.Sub(group * kHeadSize, kHeadSize));
    if (is_key) head.Write(new_key);
    if (is_value) head.Write(new_value);
    SyncBlock();

    if (is_last && part == 0) {
      for (int i = ThreadIndex(); i < size; i += kThreads) {
        const S key = new_key[i];
        const S value = new_value[i];
        Store(args.keys + (cache_row + length) * args.head_size + i, key);
        Store(args.values + (cache_row + length) * args.head_size + i, value);
      }
    }
    WaitForCopies<0>();
    RunningSoftmax<S, kHeadSize> running[kMaxHeads];
    std::int64_t s = first;
    for (int step = 0; TakesAny<kKeys>(end - begin - std::int64_t{step} * kStep<S, kHeadSize>);
         ++step, s += kStep<S, kHeadSize>) {
      Part keys[kKeys], values[kKeys];
      rows.Get(step, s, keys, values);
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
    }

    SIMT_UNROLL
    for (int h = 0; h < kMaxHeads; ++h) {
      if (h < block_heads)
        Results(memory.Sub(h * Results::kElements, Results::kElements)).Put(running[h]);
    }
    SyncBlock();
    for (int i = ThreadIndex(); i < block_heads * size; i += kThreads) {
      const int h = i / size;
      const int x = i % size;
      const Results results(memory.Sub(h * Results::kElements, Results::kElements));
      const auto merged = results.Merge();
      const C sum = results.Sum(merged, x);
      const std::int64_t head_row = b * args.heads + first_head + h;
      if (args.splits == 1) {
        Store(args.out + head_row * args.head_size + x, args.Finish(sum, merged.total, length));
        continue;
      }
      const std::int64_t at = head_row * args.splits + split;
      Store(args.partial_sums + at * args.head_size + x, sum);
      if (x > 0) continue;
      Store(args.partial_max + at, merged.max);
      Store(args.partial_totals + at, merged.total);
    }
    SyncBlock();
  }
}

/// A block for each head of each sequence adds what its splits found.
template <typename S>
SIMT_KERNEL void CombineSplitsKernel(Arguments<S> args) {
  using C = ComputeType<S>;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  WaitForEarlier();
  LetLaterBegin();
  for (std::int64_t row = BlockIndex(); row < args.batch * args.heads; row += GridSize()) {
    const C* const maxima = args.partial_max + row * args.splits;
    const C* const totals = args.partial_totals + row * args.splits;
    const C* const sums = args.partial_sums + row * args.splits * args.head_size;
    C max = -kInfinity;
    for (std::int64_t split = 0; split < args.splits; ++split) {
      const C value = Load(maxima + split);
      if (value > max) max = value;
    }
    const std::int64_t length = args.LengthOf(row / args.heads);
    for (std::int64_t x = ThreadIndex(); x < args.head_size; x += BlockSize()) {
      C total = 0;
      C sum = 0;
      for (std::int64_t split = 0; split < args.splits; ++split) {
        const C weight = Exp(Load(maxima + split) - max);
        total += weight * Load(totals + split);
        sum += weight * Load(sums + split * args.head_size + x);
      }
      Store(args.out + row * args.head_size + x, args.Finish(sum, total, length));
    }
  }
}

constexpr std::int64_t kMaxSplits = 64;

template <typename S, int kHeadSize, int kMaxHeads>
void LaunchParts(const Context& context, Arguments<S> args) {
  using C = ComputeType<S>;
  const std::int64_t parts = args.HeadParts(kMaxHeads) * args.kv_heads * args.batch;
  const std::int64_t results = args.batch * args.heads * args.splits;
  Tensor partials;
  if (args.splits > 1) {
    partials = Tensor::Empty(Dims{results * (args.head_size + 2)}, DataTypeOf<C>(), context.device);
    args.partial_sums = partials.data<C>();
    args.partial_max = args.partial_sums + results * args.head_size;
    args.partial_totals = args.partial_max + results;
  }
  Geometry geometry = Rows(parts * args.splits, kThreads);
  geometry.dynamic_shared_bytes =
      static_cast<std::size_t>(args.ahead) * CacheRows<S, kHeadSize>::kElements * sizeof(S);
  geometry.begins_early = true;
  Launch(context, geometry, &CachedAttentionKernel<S, kHeadSize, kMaxHeads>, args);
  if (args.splits == 1) return;
  Geometry combine = Rows(args.batch * args.heads, args.head_size <= 64 ? 64 : 128);
  combine.begins_early = true;
  Launch(context, combine, &CombineSplitsKernel<S>, args);
}

/// Launches the kernels for heads of up to kHeadSize.
template <int kHeadSize, typename S>
void LaunchHeads(const Context& context, Arguments<S> args) {
  using C = ComputeType<S>;
  constexpr std::size_t kAheadBytes = CacheRows<S, kHeadSize>::kElements * sizeof(S);
  constexpr std::size_t kOtherBytes =
      (kHeads<kHeadSize> *
       (kHeadSize + BlockSoftmax<S, kHeadSize, kThreads / kGroupWidth>::kElements)) *
          sizeof(C) +
      2 * kHeadSize * sizeof(S);
  const std::size_t most = std::max(MaxDynamicSharedBytes(context), kOtherBytes) - kOtherBytes;
  const std::int64_t steps = (args.positions + kStep<S, kHeadSize> - 1) / kStep<S, kHeadSize>;
  const std::int64_t ahead =
      args.vector ? static_cast<std::int64_t>(std::min(kMaxAheadBytes, most) / kAheadBytes) : 0;
  const std::int64_t processors = MultiprocessorCount(context);
  const std::int64_t parts = args.HeadParts(kHeads<kHeadSize>) * args.kv_heads * args.batch;
  // Few positions are split by heads alone, which needs no second launch, and only as far as there
  // are multiprocessors, since a key then comes from a cache once for each head.
  const bool whole = args.positions <= kMaxWholePositions;
  args.splits =
      whole ? 1 : std::clamp<std::int64_t>(std::min(processors / parts, steps), 1, kMaxSplits);
  args.ahead = static_cast<int>(std::min(ahead, (steps + args.splits - 1) / args.splits));
  if (whole && args.heads * args.batch <= processors) {
    LaunchParts<S, kHeadSize, 1>(context, args);
  } else {
    LaunchParts<S, kHeadSize, kHeads<kHeadSize>>(context, args);
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
    DispatchHeadSize(head_size,
                     [&](auto bound) { LaunchHeads<decltype(bound)::value>(context, args); });
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(CachedAttention, &CachedAttention);

}  // namespace infini_train::simt
