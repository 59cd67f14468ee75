#include <algorithm>
#include <cstdint>
#include <numbers>

#include "backends/simt/kernels/attention/attention_backward.h"
#include "backends/simt/kernels/attention/attention_tile.h"

namespace infini_train::simt {
namespace {

// A block takes kRows keys and values of a head and walks along the queries, of all heads that
// share them, that see any of them. Sums stay in the block, so that their order is fixed.
template <typename S, int kHeadSize>
SIMT_KERNEL void KeyGradientsKernel(AttentionGradients<S> args) {
  using Tile = AttentionTile<S, kHeadSize, kAttentionLaneRows<S, kHeadSize, 2>>;
  using C = ComputeType<S>;
  constexpr int kRows = Tile::kLaneRows;
  constexpr int kColumns = Tile::kLaneColumns;
  SIMT_DYNAMIC_SHARED(C, shared);
  const typename Tile::Memory memory(shared);

  const AttentionShape& shape = args.shape;
  const auto scale = static_cast<C>(shape.scale);
  const auto power_scale = static_cast<C>(shape.scale * std::numbers::log2e);
  const std::int64_t tiles = (shape.keys + Tile::kRows - 1) / Tile::kRows;
  const std::int64_t count = shape.batch * shape.kv_heads * tiles;
  for (std::int64_t block = BlockIndex(); block < count; block += GridSize()) {
    std::int64_t s0 = block % tiles * Tile::kRows;
    const std::int64_t kv_head = block / tiles % shape.kv_heads;
    const std::int64_t b = block / tiles / shape.kv_heads;
    do {
      const std::int64_t rows = shape.RowsOfTile<Tile::kRows>(s0, shape.keys);
      const std::int64_t s = s0 + Tile::Row();  // this lane's first key
      const HeadRange queries = shape.QueriesOf(s0, s0 + rows - 1);

      const MatrixRows<S> keys{args.k.At(b, kv_head, s0), args.k.row, rows};
      const MatrixRows<S> values{args.v.At(b, kv_head, s0), args.v.row, rows};
      typename Tile::Sums key_sums = {};
      typename Tile::Sums value_sums = {};
      for (std::int64_t h = kv_head * shape.group; h < (kv_head + 1) * shape.group; ++h) {
        for (std::int64_t t0 = queries.begin; t0 < queries.end; t0 += Tile::kColumns) {
          const std::int64_t columns = queries.end - t0;
          const MatrixRows<S> others{args.q.At(b, h, t0), args.q.row, columns};
          const MatrixRows<S> out_grads{args.grad_out.At(b, h, t0), args.grad_out.row, columns};
          typename Tile::Weights weights = {};
          typename Tile::Weights grads = {};
          Tile::Multiply(weights, memory, keys, others, shape.head_size, args.vector);
          Tile::Multiply(grads, memory, values, out_grads, shape.head_size, args.vector);
          SIMT_UNROLL
          for (int j = 0; j < kColumns; ++j) {
            const std::int64_t t = t0 + Tile::Column() + j;
            const bool inside = t < queries.end;
            const C lse = inside ? Load(args.lse.At(b, h, t)) * std::numbers::log2e_v<C> : C(0);
            const C delta = inside ? Load(args.delta.At(b, h, t)) : C(0);
            const LaneRange visible =
                LaneRange::Clip<kRows>(inside ? shape.VisibleKeys(t) : HeadRange{0, 0}, s);
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
              const bool seen = visible.Has(i);
              const C weight = seen ? FastExp2(weights[i][j] * power_scale - lse) : C(0);
              grads[i][j] = seen ? weight * (grads[i][j] * factors[i] - delta) * scale : C(0);
              weights[i][j] = weight * factors[i];
            }
          }
          // Gradients of the output of one slice are still in shared memory.
          Tile::PutWeights(memory, weights);
          Tile::template Accumulate<(Tile::kSlices > 1)>(value_sums, memory, out_grads,
                                                         shape.head_size, args.vector);
          Tile::PutWeights(memory, grads);
          Tile::Accumulate(key_sums, memory, others, shape.head_size, args.vector);
        }
      }
      Tile::Write(value_sums, args.grad_v.At(b, kv_head, s0), args.grad_v.row, rows,
                  shape.head_size, args.vector);
      Tile::Write(key_sums, args.grad_k.At(b, kv_head, s0), args.grad_k.row, rows, shape.head_size,
                  args.vector);
      s0 += rows;
    } while (s0 % Tile::kRows != 0 && s0 < shape.keys);
  }
}

}  // namespace

template <typename S>
void AttentionKeyGradients(const Context& context, const AttentionGradients<S>& args) {
  LaunchTiles<S, 2>(context, args.shape.kv_heads, args.shape.keys, args,
                    [](auto bound) { return &KeyGradientsKernel<S, decltype(bound)::value>; });
}

template void AttentionKeyGradients(const Context&, const AttentionGradients<float>&);
template void AttentionKeyGradients(const Context&, const AttentionGradients<double>&);
template void AttentionKeyGradients(const Context&, const AttentionGradients<Float16>&);
template void AttentionKeyGradients(const Context&, const AttentionGradients<BFloat16>&);

}  // namespace infini_train::simt
