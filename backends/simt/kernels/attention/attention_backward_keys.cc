#include <algorithm>
#include <cstdint>

#include "backends/simt/kernels/attention/attention_backward.h"
#include "backends/simt/kernels/attention/attention_tile.h"

namespace infini_train::simt {
namespace {

// A block takes kRows keys and values of a head and walks along the queries, of all heads that
// share them, that see any of them. Sums stay in the block, so that their order is fixed.
template <typename S, int kHeadSize>
SIMT_KERNEL void KeyGradientsKernel(AttentionGradients<S> args) {
  using Tile = AttentionTile<S, kHeadSize>;
  using C = ComputeType<S>;
  constexpr int kRows = Tile::kLaneRows;
  constexpr int kColumns = Tile::kLaneColumns;
  SIMT_SHARED(C, staging, Tile::kStaging);
  SIMT_SHARED(C, shared_weights, Tile::kWeights);
  SIMT_SHARED(C, shared_grads, Tile::kWeights);

  const AttentionShape& shape = args.shape;
  const auto scale = static_cast<C>(shape.scale);
  const std::int64_t tiles = (shape.keys + Tile::kRows - 1) / Tile::kRows;
  const std::int64_t count = shape.batch * shape.kv_heads * tiles;
  for (std::int64_t block = BlockIndex(); block < count; block += GridSize()) {
    const std::int64_t s0 = block % tiles * Tile::kRows;
    const std::int64_t kv_head = block / tiles % shape.kv_heads;
    const std::int64_t b = block / tiles / shape.kv_heads;
    const std::int64_t rows = Min<std::int64_t>(shape.keys - s0, Tile::kRows);
    const std::int64_t s = s0 + Tile::Row();  // this lane's first key
    const HeadRange queries = shape.QueriesOf(s0, s0 + rows - 1);

    typename Tile::Sums key_sums = {};
    typename Tile::Sums value_sums = {};
    for (std::int64_t h = kv_head * shape.group; h < (kv_head + 1) * shape.group; ++h) {
      for (std::int64_t t0 = queries.begin; t0 < queries.end; t0 += Tile::kColumns) {
        const std::int64_t columns = queries.end - t0;
        typename Tile::Weights weights = {};
        typename Tile::Weights grads = {};
        Tile::Multiply(weights, staging, args.k.At(b, kv_head, s0), args.k.row, rows,
                       args.q.At(b, h, t0), args.q.row, columns, shape.head_size, args.vector);
        Tile::Multiply(grads, staging, args.v.At(b, kv_head, s0), args.v.row, rows,
                       args.grad_out.At(b, h, t0), args.grad_out.row, columns, shape.head_size,
                       args.vector);
        SIMT_UNROLL
        for (int j = 0; j < kColumns; ++j) {
          const std::int64_t t = t0 + Tile::Column() + j;
          const bool inside = t < queries.end;
          const C lse = inside ? Load(args.lse.At(b, h, t)) : C(0);
          const C delta = inside ? Load(static_cast<const C*>(args.delta.At(b, h, t))) : C(0);
          const HeadRange visible = inside ? shape.VisibleKeys(t) : HeadRange{0, 0};
          C factors[kRows];
          SIMT_UNROLL
          for (int i = 0; i < kRows; ++i)
            factors[i] = C(1);
          if (shape.dropout.enabled()) {
            const std::int64_t row = (b * shape.heads + h) * shape.queries + t;
            shape.dropout.Factors(row * shape.keys + s, factors);
          }
          SIMT_UNROLL
          for (int i = 0; i < kRows; ++i) {
            const bool seen = s + i >= visible.begin && s + i < visible.end;
            const C weight = seen ? Exp(weights[i][j] * scale - lse) : C(0);
            grads[i][j] = seen ? weight * (grads[i][j] * factors[i] - delta) * scale : C(0);
            weights[i][j] = weight * factors[i];
          }
        }
        Tile::PutWeights(shared_weights, weights);
        Tile::PutWeights(shared_grads, grads);
        Tile::Accumulate(value_sums, staging, shared_weights, args.grad_out.At(b, h, t0),
                         args.grad_out.row, columns, shape.head_size, args.vector);
        Tile::Accumulate(key_sums, staging, shared_grads, args.q.At(b, h, t0), args.q.row, columns,
                         shape.head_size, args.vector);
      }
    }
    Tile::Write(value_sums, args.grad_v.At(b, kv_head, s0), args.grad_v.row, rows, shape.head_size,
                args.vector);
    Tile::Write(key_sums, args.grad_k.At(b, kv_head, s0), args.grad_k.row, rows, shape.head_size,
                args.vector);
  }
}

}  // namespace

template <typename S>
void AttentionKeyGradients(const Context& context, const AttentionGradients<S>& args) {
  LaunchTiles<S>(context, args.shape.kv_heads, args.shape.keys, args,
                 [](auto bound) { return &KeyGradientsKernel<S, decltype(bound)::value>; });
}

template void AttentionKeyGradients(const Context&, const AttentionGradients<float>&);
template void AttentionKeyGradients(const Context&, const AttentionGradients<double>&);
template void AttentionKeyGradients(const Context&, const AttentionGradients<Float16>&);
template void AttentionKeyGradients(const Context&, const AttentionGradients<BFloat16>&);

}  // namespace infini_train::simt
