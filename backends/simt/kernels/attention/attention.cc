#include "backends/simt/kernels/attention/attention.h"

#include <cstdint>
#include <limits>
#include <numbers>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/attention/attention_decode.h"
#include "backends/simt/kernels/attention/attention_heads.h"
#include "backends/simt/kernels/attention/attention_square.h"
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
    const std::int64_t t0 = (tiles - 1 - block % tiles) * Tile::kRows;
    const std::int64_t h = block / tiles % shape.heads;
    const std::int64_t b = block / tiles / shape.heads;
    const std::int64_t rows = Min<std::int64_t>(shape.queries - t0, Tile::kRows);
    const HeadRange first = shape.VisibleKeys(t0);
    const HeadRange last = shape.VisibleKeys(t0 + rows - 1);

    const MatrixRows<S> own{args.q.At(b, h, t0), args.q.row, rows};
    if constexpr (Tile::kSlices == 1) Tile::LoadRows(memory, own, 0, shape.head_size, args.vector);
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
  }
}

// The same in square tiles, of lanes with larger parts of a product. A block takes 64 queries;
// tiles are loaded while lanes work on others, keys make room for weights.
template <typename S>
SIMT_KERNEL void SquareAttentionKernel(Arguments<S> args) {
  using Tile = SquareTile<S>;
  using C = ComputeType<S>;
  constexpr int kEdge = Tile::kEdge;
  constexpr int kLaneEdge = Tile::kLaneEdge;
  constexpr int kElements = Tile::kElements;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  SIMT_DYNAMIC_SHARED(C, shared);
  const Shared<C> queries = shared.Sub(0, kElements);
  const Shared<C> keys = shared.Sub(kElements, kElements);
  const Shared<C> values = shared.Sub(2 * kElements, kElements);
  const Shared<C> kept_weights = keys;

  const AttentionShape& shape = args.shape;
  const auto scale = static_cast<C>(shape.scale * std::numbers::log2e);
  const bool drops = shape.dropout.enabled();
  const auto keep = static_cast<C>(shape.dropout.keep);
  const int depth = static_cast<int>(shape.head_size);
  const std::int64_t tiles = (shape.queries + kEdge - 1) / kEdge;
  const std::int64_t count = shape.batch * shape.heads * tiles;
  for (std::int64_t block = BlockIndex(); block < count; block += GridSize()) {
    // The last queries, which have most keys where attention is causal, first.
    const std::int64_t t0 = (tiles - 1 - block % tiles) * kEdge;
    const std::int64_t h = block / tiles % shape.heads;
    const std::int64_t b = block / tiles / shape.heads;
    const std::int64_t kv_head = h / shape.group;
    const std::int64_t rows = Min<std::int64_t>(shape.queries - t0, kEdge);
    const HeadRange first = shape.VisibleKeys(t0);
    const HeadRange last = shape.VisibleKeys(t0 + rows - 1);

    typename Tile::Sums sums = {};
    C max[kLaneEdge];
    C sum[kLaneEdge] = {};  // over this lane's columns, in the end over all
    SIMT_UNROLL
    for (int i = 0; i < kLaneEdge; ++i)
      max[i] = -kInfinity;
    {
      typename Tile::template Loader<Tile::kTeam> query_loader;
      query_loader.Fetch(args.q.At(b, h, t0), args.q.row, rows, shape.head_size, args.vector);
      query_loader.Put(queries);
      typename Tile::template KeyLoader<Tile::kTeam> key_loader;
      key_loader.Fetch(args.k.At(b, kv_head, first.begin), args.k.row, last.end - first.begin,
                       shape.head_size, args.vector);
      key_loader.Put(keys);
    }
    for (std::int64_t s0 = first.begin; s0 < last.end; s0 += kEdge) {
      SyncBlock();
      typename Tile::Sums weights = {};
      Tile::Multiply(weights, queries, keys, depth);
      typename Tile::template Loader<Tile::kTeam> value_loader;
      value_loader.Fetch(args.v.At(b, kv_head, s0), args.v.row, last.end - s0, shape.head_size,
                         args.vector);

      SIMT_UNROLL
      for (int i = 0; i < kLaneEdge; ++i) {
        SIMT_UNROLL
        for (int j = 0; j < kLaneEdge; ++j)
          weights[i][j] *= scale;
      }
      if (s0 < last.begin || s0 + kEdge > first.end) {
        const std::uint64_t seen = Tile::Seen(shape, t0, s0);
        SIMT_UNROLL
        for (int i = 0; i < kLaneEdge; ++i) {
          SIMT_UNROLL
          for (int j = 0; j < kLaneEdge; ++j)
            weights[i][j] = Tile::Has(seen, i, j) ? weights[i][j] : -kInfinity;
        }
      }
      C tile_max[kLaneEdge];
      SIMT_UNROLL
      for (int i = 0; i < kLaneEdge; ++i) {
        tile_max[i] = max[i];
        SIMT_UNROLL
        for (int j = 0; j < kLaneEdge; ++j)
          tile_max[i] = weights[i][j] > tile_max[i] ? weights[i][j] : tile_max[i];
      }
      Tile::ReduceColumns(tile_max, RowMax());
      std::uint64_t kept = 0;
      if (drops) kept = Tile::Kept(shape, b * shape.heads + h, t0, s0);
      SyncBlock();  // Weights take the place of keys.
      SIMT_UNROLL
      for (int i = 0; i < kLaneEdge; ++i) {
        const C shift = tile_max[i] == -kInfinity ? C(0) : tile_max[i];
        const C alpha = FastExp2(max[i] - shift);
        max[i] = tile_max[i];
        sum[i] *= alpha;
        SIMT_UNROLL
        for (int j = 0; j < kLaneEdge; ++j) {
          weights[i][j] = FastExp2(weights[i][j] - shift);
          sum[i] += weights[i][j];
          sums[i][j] *= alpha;
          if (drops) weights[i][j] *= Tile::Has(kept, i, j) ? keep : C(0);
        }
        Tile::PutRow(kept_weights, i, weights[i]);
      }
      value_loader.Put(values);
      SyncBlock();
      // Of no rows behind the last keys, rather than under a condition: see GradientsKernel.
      const std::int64_t next = Min<std::int64_t>(s0 + kEdge, last.end);
      typename Tile::template KeyLoader<Tile::kTeam> key_loader;
      key_loader.Fetch(args.k.At(b, kv_head, next), args.k.row, last.end - next, shape.head_size,
                       args.vector);
      Tile::template SumOverKeys<false, Tile::kVectors>(sums, kept_weights, values,
                                                        Tile::LaneColumn() * Tile::kVector);
      SyncBlock();
      key_loader.Put(keys);
    }
    SyncBlock();  // The next block's tiles replace these.

    Tile::ReduceColumns(sum, RowSum());
    SIMT_UNROLL
    for (int i = 0; i < kLaneEdge; ++i) {
      const C factor = sum[i] == C(0) ? C(0) : C(1) / sum[i];
      SIMT_UNROLL
      for (int j = 0; j < kLaneEdge; ++j)
        sums[i][j] *= factor;
      const int row = Tile::QueryRow(i);
      if (row >= rows) continue;
      if (Tile::LaneColumn() == 0)
        Store(args.lse.At(b, h, t0 + row), max[i] * std::numbers::ln2_v<C> + Log(sum[i]));
      Tile::WriteRow(sums[i], args.out.At(b, h, t0 + row), shape.head_size, args.vector);
    }
  }
}

// Whether it has launched the kernel.
template <typename S>
bool LaunchSquare(const Context& context, const Arguments<S>& args) {
  if constexpr (!kHasSquareTiles<S>) {
    return false;
  } else {
    using Tile = SquareTile<S>;
    const AttentionShape& shape = args.shape;
    if (shape.head_size > Tile::kEdge) return false;
    const std::int64_t tiles = (shape.queries + Tile::kEdge - 1) / Tile::kEdge;
    Geometry geometry = Rows(shape.batch * shape.heads * tiles, Tile::kTeam);
    geometry.dynamic_shared_bytes = 3 * Tile::kElements * sizeof(ComputeType<S>);
    Launch(context, geometry, SquareAttentionKernel<S>, args);
    return true;
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
    if (LaunchSquare(context, args)) return;
    LaunchTiles<S, 1>(context, shape.heads, shape.queries, args,
                      [](auto bound) { return &AttentionKernel<S, decltype(bound)::value>; });
  });
}

}  // namespace infini_train::simt
