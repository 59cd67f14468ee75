#include "backends/simt/kernels/attention/attention.h"

#include <cstdint>
#include <limits>
#include <numbers>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/attention/attention_decode.h"
#include "backends/simt/kernels/attention/attention_heads.h"
#include "backends/simt/kernels/attention/attention_tile.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

template <typename S>
struct Arguments {
  HeadRows<S> out;
  HeadRows<ComputeType<S>> lse;
  HeadRows<const S> q, k, v;
  AttentionShape shape;
  bool vector;
};

// A block takes kRows queries of a head and walks along their keys with a running maximum and sum
// (Dao, "FlashAttention-2", 2023).
template <typename S, int kHeadSize>
SIMT_KERNEL void AttentionKernel(Arguments<S> args) {
  using Tile = AttentionTile<S, kHeadSize, kAttentionLaneRows<S, kHeadSize, 1>>;
  using C = ComputeType<S>;
  constexpr int kRows = Tile::kLaneRows;
  constexpr int kColumns = Tile::kLaneColumns;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  SIMT_DYNAMIC_SHARED(C, shared);
  const typename Tile::Memory memory(shared);

  const AttentionShape& shape = args.shape;
  // Exponentials are powers of two.
  const auto scale = static_cast<C>(shape.scale * std::numbers::log2e);
  const std::int64_t tiles = (shape.queries + Tile::kRows - 1) / Tile::kRows;
  const std::int64_t count = shape.batch * shape.heads * tiles;
  for (std::int64_t block = BlockIndex(); block < count; block += GridSize()) {
    // The last queries, which have most keys where attention is causal, first.
    std::int64_t t0 = (tiles - 1 - block % tiles) * Tile::kRows;
    const std::int64_t h = block / tiles % shape.heads;
    const std::int64_t b = block / tiles / shape.heads;
    do {
      const std::int64_t rows = shape.RowsOfTile<Tile::kRows>(t0, shape.queries);
      const HeadRange first = shape.VisibleKeys(t0);
      const HeadRange last = shape.VisibleKeys(t0 + rows - 1);

      const MatrixRows<S> own{args.q.At(b, h, t0), args.q.row, rows};
      if constexpr (Tile::kSlices == 1)
        Tile::LoadRows(memory, own, 0, shape.head_size, args.vector);
      typename Tile::Sums sums = {};
      C max[kRows];
      C sum[kRows] = {};  // over this lane's columns, in the end over all
      SIMT_UNROLL
      for (int i = 0; i < kRows; ++i)
        max[i] = -kInfinity;
      for (std::int64_t s0 = first.begin; s0 < last.end; s0 += Tile::kColumns) {
        const std::int64_t columns = last.end - s0;
        const MatrixRows<S> keys{args.k.At(b, h / shape.group, s0), args.k.row, columns};
        const MatrixRows<S> values{args.v.At(b, h / shape.group, s0), args.v.row, columns};
        typename Tile::Weights weights = {};
        Tile::template Multiply<(Tile::kSlices > 1)>(weights, memory, own, keys, shape.head_size,
                                                     args.vector);

        const bool all_visible = s0 >= last.begin && s0 + Tile::kColumns <= first.end;
        C tile_max[kRows];
        SIMT_UNROLL
        for (int i = 0; i < kRows; ++i) {
          const LaneRange visible =
              all_visible ? LaneRange{0, kColumns}
                          : LaneRange::Clip<kColumns>(shape.VisibleKeys(t0 + Tile::Row() + i),
                                                      s0 + Tile::Column());
          tile_max[i] = max[i];
          SIMT_UNROLL
          for (int j = 0; j < kColumns; ++j) {
            weights[i][j] = visible.Has(j) ? weights[i][j] * scale : -kInfinity;
            if (weights[i][j] > tile_max[i]) tile_max[i] = weights[i][j];
          }
        }
        ReduceRows<Tile::kGroup>(tile_max, RowMax());
        SIMT_UNROLL
        for (int i = 0; i < kRows; ++i) {
          const C shift = tile_max[i] == -kInfinity ? C(0) : tile_max[i];
          const C alpha = FastExp2(max[i] - shift);
          max[i] = tile_max[i];
          sum[i] *= alpha;
          SIMT_UNROLL
          for (int j = 0; j < kColumns; ++j) {
            weights[i][j] = FastExp2(weights[i][j] - shift);
            sum[i] += weights[i][j];
          }
          SIMT_UNROLL
          for (int slice = 0; slice < Tile::kSlices; ++slice) {
            SIMT_UNROLL
            for (int j = 0; j < Tile::kVector; ++j)
              sums[slice][i][j] *= alpha;
          }
          if (shape.dropout.enabled()) {
            C factors[kColumns];
            const std::int64_t row = (b * shape.heads + h) * shape.queries + t0 + Tile::Row() + i;
            shape.dropout.Factors(row * shape.keys + s0 + Tile::Column(), factors);
            SIMT_UNROLL
            for (int j = 0; j < kColumns; ++j)
              weights[i][j] *= factors[j];
          }
        }
        Tile::PutWeights(memory, weights);
        Tile::Accumulate(sums, memory, values, shape.head_size, args.vector);
      }

      ReduceRows<Tile::kGroup>(sum, RowSum());
      SIMT_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const C factor = sum[i] == C(0) ? C(0) : C(1) / sum[i];
        SIMT_UNROLL
        for (int slice = 0; slice < Tile::kSlices; ++slice) {
          SIMT_UNROLL
          for (int j = 0; j < Tile::kVector; ++j)
            sums[slice][i][j] *= factor;
        }
        if (ThreadIndex() % Tile::kGroup == 0 && Tile::Row() + i < rows)
          Store(args.lse.At(b, h, t0 + Tile::Row() + i),
                max[i] * std::numbers::ln2_v<C> + Log(sum[i]));
      }
      Tile::Write(sums, args.out.At(b, h, t0), args.out.row, rows, shape.head_size, args.vector);
      t0 += rows;
    } while (t0 % Tile::kRows != 0 && t0 < shape.queries);
  }
}

}  // namespace

void PortableAttention(const Context& context, Tensor& out, Tensor& lse, const Tensor& q,
                       const Tensor& k, const Tensor& v, const Tensor& cumulative_lengths,
                       const AttentionParams& params) {
  const Tensor samples = AttentionSamples(context, cumulative_lengths, k.size(2));
  const AttentionShape shape(q, k, samples, params);
  if (q.size(2) <= kDecodeQueries) {
    DecodeAttention(context, out, lse, q, k, v, shape);
    return;
  }
  DispatchFloating("Attention", q.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using C = ComputeType<S>;
    const Arguments<S> args{HeadRows<S>(out),
                            HeadRows<C>(lse),
                            HeadRows<const S>(q),
                            HeadRows<const S>(k),
                            HeadRows<const S>(v),
                            shape,
                            HaveAlignedRows(kMaxVectorWidth<C>, {&out, &q, &k, &v})};
    LaunchTiles<S, 1>(context, shape.heads, shape.queries, args,
                      [](auto bound) { return &AttentionKernel<S, decltype(bound)::value>; });
  });
}

}  // namespace infini_train::simt
