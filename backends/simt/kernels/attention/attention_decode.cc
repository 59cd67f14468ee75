#include "backends/simt/kernels/attention/attention_decode.h"

#include <cstdint>
#include <limits>

#include "backends/simt/kernels/attention/attention_running.h"

namespace infini_train::simt {
namespace {

constexpr int kThreads = 128;

template <typename S>
struct Arguments {
  HeadRows<S> out;
  HeadRows<ComputeType<S>> lse;
  HeadRows<const S> q, k, v;
  AttentionShape shape;
  bool vector;
};

/// What the lane has of the keys or values of kKeys positions, zeros behind the last.
template <typename S, int kHeadSize, int kKeys>
SIMT_DEVICE void ReadPositions(RowPart<S, kHeadSize> (&parts)[kKeys], const S* first,
                               std::int64_t row, std::int64_t count, int size, bool vector) {
  SIMT_UNROLL
  for (int i = 0; i < kKeys; ++i)
    parts[i].Read(first + i * row, i < count ? size : 0, vector);
}

template <typename S, int kHeadSize>
SIMT_KERNEL void DecodeKernel(Arguments<S> args) {
  using C = ComputeType<S>;
  using Part = RowPart<S, kHeadSize>;
  using Results = BlockSoftmax<S, kHeadSize, kThreads / kGroupWidth>;
  constexpr int kKeys = kPositions<S, kHeadSize>;
  constexpr int kStep = kThreads / kPositionLanes * kKeys;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  SIMT_SHARED(C, memory, Results::kElements);
  const Results results(memory);

  const AttentionShape& shape = args.shape;
  const auto scale = static_cast<C>(shape.scale);
  const auto size = static_cast<int>(shape.head_size);
  const std::int64_t count = shape.batch * shape.heads * shape.queries;
  for (std::int64_t row = BlockIndex(); row < count; row += GridSize()) {
    const std::int64_t t = row % shape.queries;
    const std::int64_t h = row / shape.queries % shape.heads;
    const std::int64_t b = row / shape.queries / shape.heads;
    const std::int64_t kv_head = h / shape.group;
    Part part;
    part.Read(args.q.At(b, h, t), size, args.vector);
    C query[Part::kCount];
    part.Widen(query);

    RunningSoftmax<S, kHeadSize> running;
    const HeadRange seen = shape.VisibleKeys(t);
    for (std::int64_t first = seen.begin; TakesAny<kKeys>(seen.end - first); first += kStep) {
      const std::int64_t s = first + ThreadIndex() / kPositionLanes * kKeys;
      const std::int64_t left = seen.end - s;
      Part keys[kKeys], values[kKeys];
      ReadPositions(keys, args.k.At(b, kv_head, s), args.k.row, left, size, args.vector);
      ReadPositions(values, args.v.At(b, kv_head, s), args.v.row, left, size, args.vector);
      Vec<C, kKeys> scores = Scores<S, kHeadSize>(query, keys);
      SIMT_UNROLL
      for (int i = 0; i < kKeys; ++i)
        scores[i] = i < left ? scores[i] * scale : -kInfinity;
      C factors[kKeys];
      SIMT_UNROLL
      for (int i = 0; i < kKeys; ++i)
        factors[i] = C(1);
      if (shape.dropout.enabled()) shape.dropout.Factors(row * shape.keys + s, factors);
      running.Add(scores, values, factors);
    }

    results.Put(running);
    SyncBlock();
    const auto merged = results.Merge();
    const C factor = merged.total == C(0) ? C(0) : C(1) / merged.total;
    S* out = args.out.At(b, h, t);
    for (int x = ThreadIndex(); x < size; x += kThreads)
      Store(out + x, FromCompute<S>(results.Sum(merged, x) * factor));
    if (ThreadIndex() == 0) Store(args.lse.At(b, h, t), merged.max + Log(merged.total));
    SyncBlock();
  }
}

}  // namespace

void DecodeAttention(const Context& context, Tensor& out, Tensor& lse, const Tensor& q,
                     const Tensor& k, const Tensor& v, const AttentionShape& shape) {
  DispatchFloating("Attention", q.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using C = ComputeType<S>;
    const Arguments<S> args{HeadRows<S>(out),
                            HeadRows<C>(lse),
                            HeadRows<const S>(q),
                            HeadRows<const S>(k),
                            HeadRows<const S>(v),
                            shape,
                            HaveAlignedRows(kMaxVectorWidth<S>, {&q, &k, &v})};
    DispatchHeadSize(shape.head_size, [&](auto bound) {
      Launch(context, Rows(shape.batch * shape.heads * shape.queries, kThreads),
             DecodeKernel<S, decltype(bound)::value>, args);
    });
  });
}

}  // namespace infini_train::simt
