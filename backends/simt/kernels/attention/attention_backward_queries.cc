#include <algorithm>
#include <cstdint>
#include <numbers>

#include "backends/simt/kernels/attention/attention_backward.h"
#include "backends/simt/kernels/attention/attention_tile.h"

namespace infini_train::simt {
namespace {

// A block takes kRows queries of a head and computes their weights again from lse, a tile of keys
// at a time.
template <typename S, int kHeadSize>
SIMT_KERNEL void QueryGradientsKernel(AttentionGradients<S> args) {
  using Tile = AttentionTile<S, kHeadSize, kAttentionLaneRows<S, kHeadSize, 1>>;
  using C = ComputeType<S>;
  constexpr int kRows = Tile::kLaneRows;
  constexpr int kColumns = Tile::kLaneColumns;
  SIMT_DYNAMIC_SHARED(C, shared);
  const typename Tile::Memory memory(shared);

  const AttentionShape& shape = args.shape;
  const auto scale = static_cast<C>(shape.scale);
  const auto power_scale = static_cast<C>(shape.scale * std::numbers::log2e);
  const std::int64_t tiles = (shape.queries + Tile::kRows - 1) / Tile::kRows;
  const std::int64_t count = shape.batch * shape.heads * tiles;
  for (std::int64_t block = BlockIndex(); block < count; block += GridSize()) {
    // The last queries, which have most keys where attention is causal, first.
    std::int64_t t0 = (tiles - 1 - block % tiles) * Tile::kRows;
    const std::int64_t h = block / tiles % shape.heads;
    const std::int64_t b = block / tiles / shape.heads;
    const std::int64_t kv_head = h / shape.group;
    do {
      const std::int64_t rows = shape.RowsOfTile<Tile::kRows>(t0, shape.queries);
      const std::int64_t t = t0 + Tile::Row();  // this lane's first query

      C delta[kRows] = {};
      C lse[kRows] = {};
      SIMT_UNROLL
      for (int i = 0; i < kRows; ++i) {
        if (Tile::Row() + i >= rows) continue;
        delta[i] = Load(args.delta.At(b, h, t + i));
        lse[i] = Load(args.lse.At(b, h, t + i)) * std::numbers::log2e_v<C>;
      }

      const MatrixRows<S> own{args.q.At(b, h, t0), args.q.row, rows};
      const MatrixRows<S> out_grads{args.grad_out.At(b, h, t0), args.grad_out.row, rows};
      typename Tile::Sums sums = {};
      const HeadRange first = shape.VisibleKeys(t0);
      const HeadRange last = shape.VisibleKeys(t0 + rows - 1);
      for (std::int64_t s0 = first.begin; s0 < last.end; s0 += Tile::kColumns) {
        const std::int64_t columns = last.end - s0;
        const MatrixRows<S> keys{args.k.At(b, kv_head, s0), args.k.row, columns};
        const MatrixRows<S> values{args.v.At(b, kv_head, s0), args.v.row, columns};
        typename Tile::Weights weights = {};
        typename Tile::Weights grads = {};
        Tile::Multiply(grads, memory, out_grads, values, shape.head_size, args.vector);
        Tile::Multiply(weights, memory, own, keys, shape.head_size, args.vector);
        const bool all_visible = s0 >= last.begin && s0 + Tile::kColumns <= first.end;
        const std::int64_t s = s0 + Tile::Column();
        SIMT_UNROLL
        for (int i = 0; i < kRows; ++i) {
          if (shape.dropout.enabled()) {
            C factors[kColumns];
            const std::int64_t row = (b * shape.heads + h) * shape.queries + t + i;
            shape.dropout.Factors(row * shape.keys + s, factors);
            SIMT_UNROLL
            for (int j = 0; j < kColumns; ++j)
              grads[i][j] *= factors[j];
          }
          const LaneRange visible = all_visible
                                        ? LaneRange{0, kColumns}
                                        : LaneRange::Clip<kColumns>(shape.VisibleKeys(t + i), s);
          SIMT_UNROLL
          for (int j = 0; j < kColumns; ++j) {
            const C weight = FastExp2(weights[i][j] * power_scale - lse[i]);
            grads[i][j] = visible.Has(j) ? weight * (grads[i][j] - delta[i]) * scale : C(0);
          }
        }
        Tile::PutWeights(memory, grads);
        // Keys of one slice are still in shared memory.
        Tile::template Accumulate<(Tile::kSlices > 1)>(sums, memory, keys, shape.head_size,
                                                       args.vector);
      }
      Tile::Write(sums, args.grad_q.At(b, h, t0), args.grad_q.row, rows, shape.head_size,
                  args.vector);
      t0 += rows;
    } while (t0 % Tile::kRows != 0 && t0 < shape.queries);
  }
}

}  // namespace

template <typename S>
void AttentionQueryGradients(const Context& context, const AttentionGradients<S>& args) {
  LaunchTiles<S, 1>(context, args.shape.heads, args.shape.queries, args,
                    [](auto bound) { return &QueryGradientsKernel<S, decltype(bound)::value>; });
}

template void AttentionQueryGradients(const Context&, const AttentionGradients<float>&);
template void AttentionQueryGradients(const Context&, const AttentionGradients<double>&);
template void AttentionQueryGradients(const Context&, const AttentionGradients<Float16>&);
template void AttentionQueryGradients(const Context&, const AttentionGradients<BFloat16>&);

}  // namespace infini_train::simt
