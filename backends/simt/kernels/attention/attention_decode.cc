#include "backends/simt/kernels/attention/attention_decode.h"

#include <cstdint>
#include <limits>

#include "backends/simt/kernels/attention/attention_tile.h"

namespace infini_train::simt {
namespace {

constexpr int kThreads = 128;
constexpr int kGroup = 8;  // lanes that share a key, a logical group
constexpr int kGroups = kThreads / kGroup;
constexpr int kKeys = 4;  // keys that a group takes at once

template <typename S>
struct Arguments {
  HeadRows<S> out;
  HeadRows<ComputeType<S>> lse;
  HeadRows<const S> q, k, v;
  AttentionShape shape;
  bool vector;
};

/// A lane's elements of a row of up to kHeadSize: every kGroup-th vector. Those beyond are 0.
template <typename S, int kHeadSize>
struct RowPart {
  using C = ComputeType<S>;
  static constexpr int kVector = kMaxVectorWidth<C>;
  static constexpr int kPieces = kHeadSize / (kGroup * kVector);
  static constexpr int kCount = kPieces * kVector;

  SIMT_DEVICE static std::int64_t Position(int piece) {
    return (piece * kGroup + ThreadIndex() % kGroup) * kVector;
  }

  SIMT_DEVICE void Read(const S* row, std::int64_t size, bool vector) {
    SIMT_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) {
      const std::int64_t x = Position(piece);
      if (vector && x < size) {
        const Vec<S, kVector> values = Load<kVector>(row + x);
        SIMT_UNROLL
        for (int i = 0; i < kVector; ++i)
          v[piece * kVector + i] = ToCompute(values[i]);
      } else {
        SIMT_UNROLL
        for (int i = 0; i < kVector; ++i)
          v[piece * kVector + i] = x + i < size ? ToCompute(Load(row + x + i)) : C(0);
      }
    }
  }

  C v[kCount];
};

// Each group of lanes has its own running maximum and sums over the keys that it takes; they meet
// at the end.
template <typename S, int kHeadSize>
SIMT_KERNEL void DecodeKernel(Arguments<S> args) {
  using C = ComputeType<S>;
  using Part = RowPart<S, kHeadSize>;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  SIMT_SHARED(C, shared_sums, kGroups * kHeadSize);
  SIMT_SHARED(C, shared_max, kGroups);
  SIMT_SHARED(C, shared_total, kGroups);

  const AttentionShape& shape = args.shape;
  const auto scale = static_cast<C>(shape.scale);
  const int group = ThreadIndex() / kGroup;
  const std::int64_t count = shape.batch * shape.heads * shape.queries;
  for (std::int64_t row = BlockIndex(); row < count; row += GridSize()) {
    const std::int64_t t = row % shape.queries;
    const std::int64_t h = row / shape.queries % shape.heads;
    const std::int64_t b = row / shape.queries / shape.heads;
    const std::int64_t kv_head = h / shape.group;
    Part query;
    query.Read(args.q.At(b, h, t), shape.head_size, args.vector);

    C max = -kInfinity;
    C total = 0;
    C sums[Part::kCount] = {};
    const HeadRange keys = shape.VisibleKeys(t);
    for (std::int64_t s = keys.begin + group * kKeys; s < keys.end; s += kGroups * kKeys) {
      Vec<C, kKeys> scores{};
      SIMT_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        if (s + i >= keys.end) continue;
        Part key;
        key.Read(args.k.At(b, kv_head, s + i), shape.head_size, args.vector);
        SIMT_UNROLL
        for (int x = 0; x < Part::kCount; ++x)
          scores[i] += query.v[x] * key.v[x];
      }
      scores = ReduceGroup<kGroup>(scores, RowSum());
      C new_max = max;
      SIMT_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        scores[i] = s + i < keys.end ? scores[i] * scale : -kInfinity;
        if (scores[i] > new_max) new_max = scores[i];
      }
      const C shift = new_max == -kInfinity ? C(0) : new_max;
      const C alpha = Exp(max - shift);
      max = new_max;
      total *= alpha;
      SIMT_UNROLL
      for (int x = 0; x < Part::kCount; ++x)
        sums[x] *= alpha;
      C factors[kKeys] = {C(1), C(1), C(1), C(1)};
      if (shape.dropout.enabled()) shape.dropout.Factors(row * shape.keys + s, factors);
      SIMT_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        if (s + i >= keys.end) continue;
        const C weight = Exp(scores[i] - shift);
        total += weight;
        Part value;
        value.Read(args.v.At(b, kv_head, s + i), shape.head_size, args.vector);
        SIMT_UNROLL
        for (int x = 0; x < Part::kCount; ++x)
          sums[x] += weight * factors[i] * value.v[x];
      }
    }

    SIMT_UNROLL
    for (int piece = 0; piece < Part::kPieces; ++piece) {
      Vec<C, Part::kVector> values;
      for (int i = 0; i < Part::kVector; ++i)
        values[i] = sums[piece * Part::kVector + i];
      shared_sums.Store(group * kHeadSize + Part::Position(piece), values);
    }
    if (ThreadIndex() % kGroup == 0) {
      shared_max[group] = max;
      shared_total[group] = total;
    }
    SyncBlock();
    C all_max = -kInfinity;
    C weights[kGroups];  // of the groups' sums
    SIMT_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      weights[g] = shared_max[g];
      if (weights[g] > all_max) all_max = weights[g];
    }
    C all_total = 0;
    SIMT_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      const C group_total = shared_total[g];
      weights[g] = Exp(weights[g] - (all_max == -kInfinity ? C(0) : all_max));
      all_total += group_total * weights[g];
    }
    const C factor = all_total == C(0) ? C(0) : C(1) / all_total;
    S* out = args.out.At(b, h, t);
    for (std::int64_t x = ThreadIndex(); x < shape.head_size; x += kThreads) {
      C sum = 0;
      SIMT_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        const C group_sum = shared_sums[g * kHeadSize + x];
        sum += group_sum * weights[g];
      }
      Store(out + x, FromCompute<S>(sum * factor));
    }
    if (ThreadIndex() == 0) Store(args.lse.At(b, h, t), all_max + Log(all_total));
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
                            HaveAlignedRows(kMaxVectorWidth<C>, {&q, &k, &v})};
    DispatchHeadSize(shape.head_size, [&](auto bound) {
      Launch(context, Rows(shape.batch * shape.heads * shape.queries, kThreads),
             DecodeKernel<S, decltype(bound)::value>, args);
    });
  });
}

}  // namespace infini_train::simt
