#include <algorithm>
#include <cstdint>
#include <numbers>

#include "backends/simt/kernels/attention/attention_backward.h"
#include "backends/simt/kernels/attention/attention_square.h"

namespace infini_train::simt {
namespace {

constexpr int kThreads = 128;

/// Where blocks sum gradients of queries: tiles [splits, batch, heads, tiles], each of kEdge rows
/// of kEdge elements.
template <typename C>
struct QuerySums {
  C* data;
  int splits, tiles;
};

template <typename S>
struct PassArguments {
  AttentionGradients<S> tensors;
  QuerySums<ComputeType<S>> sums;
};

/// The tiles of queries, of all heads that share a head of keys, that see any of a tile of keys.
struct QueryWalk {
  SIMT_DEVICE int size() const { return (end - begin) * group; }
  SIMT_DEVICE int Head(int i) const { return i / (end - begin); }
  SIMT_DEVICE int Tile(int i) const { return begin + i % (end - begin); }

  int begin, end;
  int group;
};

/// Moves two tiles of queries to shared memory; lanes hold them while others are there.
template <typename S, bool kSamples>
struct QueryLoader {
  using Loader = typename SquareTile<S>::template Loader<kThreads>;

  /// Reads the tile from `t0` on, with kSamples what is in the range of it.
  SIMT_DEVICE void Fetch(const AttentionGradients<S>& args, std::int64_t b, std::int64_t h,
                         std::int64_t t0, const HeadRange& range) {
    const std::int64_t rows = (kSamples ? range.end : args.shape.queries) - t0;
    const std::int64_t skipped = kSamples ? range.begin - t0 : 0;
    const std::int64_t head_size = args.shape.head_size;
    queries.Fetch(args.q.At(b, h, t0), args.q.row, rows, head_size, args.vector, skipped);
    out_grads.Fetch(args.grad_out.At(b, h, t0), args.grad_out.row, rows, head_size, args.vector,
                    skipped);
  }

  SIMT_DEVICE void Put(const Shared<ComputeType<S>>& to_queries,
                       const Shared<ComputeType<S>>& to_out_grads) const {
    queries.Put(to_queries);
    out_grads.Put(to_out_grads);
  }

  Loader queries, out_grads;
};

/// Sets a lane's part of the sums of tiles [begin, end) of `group` heads to zero.
template <typename Tile, typename C>
SIMT_DEVICE void ClearSums(C* sums, int tiles, int group, int begin, int end) {
  for (int h = 0; h < group; ++h) {
    for (int tile = begin; tile < end; ++tile) {
      C* to = sums + (std::int64_t{h} * tiles + tile) * Tile::kEdge * Tile::kEdge;
      SIMT_UNROLL
      for (int i = 0; i < Tile::kLaneEdge; ++i)
        Store(to + i * Tile::kLanes * Tile::kEdge, Vec<C, Tile::kVector>{});
    }
  }
}

// All gradients by one pass: weights and their gradients, two products, are computed once for the
// three others. Blocks that share a head take its tiles of keys in turns. Each has a sum of its own
// of the queries' gradients, in global memory, to which it alone adds: the order of sums is fixed.
//
// A block is two teams. The first computes weights and the gradients of values, the second the
// weights' gradients and from them the keys'; then both compute the gradients of queries.
//
// With kSamples a block takes the samples that a tile of keys has parts of one after another, and
// reads and adds to the queries of that one alone: see AttentionShape::SampleEnd().
template <typename S, bool kSamples>
SIMT_KERNEL void GradientsKernel(PassArguments<S> pass) {
  using Tile = SquareTile<S>;
  using C = ComputeType<S>;
  constexpr int kEdge = Tile::kEdge;
  constexpr int kLaneEdge = Tile::kLaneEdge;
  constexpr int kVector = Tile::kVector;
  constexpr int kElements = Tile::kElements;
  // The queries that the first team works on while the second is behind.
  constexpr int kAhead = 2 * Tile::kStep;
  SIMT_DYNAMIC_SHARED(C, shared);
  const Shared<C> queries = shared.Sub(0, kElements);
  const Shared<C> out_grads = shared.Sub(kElements, kElements);
  const Shared<C> keys = shared.Sub(2 * kElements, kElements);
  const Shared<C> values = shared.Sub(3 * kElements, kElements);
  const Shared<C> weights = shared.Sub(4 * kElements, kElements);
  const Shared<C> grads = shared.Sub(5 * kElements, kElements);

  const AttentionGradients<S>& args = pass.tensors;
  const AttentionShape& shape = args.shape;
  const auto scale = static_cast<C>(shape.scale);
  const auto power_scale = static_cast<C>(shape.scale * std::numbers::log2e);
  const int depth = static_cast<int>(shape.head_size);
  const int team = ThreadIndex() / Tile::kTeam;
  // The operands of a team's products: (queries, keys) or (out_grads, values), and (weights,
  // out_grads) or (grads, queries).
  const Shared<C> rows_of_team = shared.Sub(team * kElements, kElements);
  const Shared<C> columns_of_team = shared.Sub((2 + team) * kElements, kElements);
  const Shared<C> weights_of_team = shared.Sub((4 + team) * kElements, kElements);
  const Shared<C> summed_by_team = shared.Sub((1 - team) * kElements, kElements);
  const bool drops = shape.dropout.enabled();
  const auto keep = static_cast<C>(shape.dropout.keep);
  const Shared<C> undropped_weights = shared.Sub((drops ? 5 : 4) * kElements, kElements);
  const int x = (team * Tile::kLanes + Tile::LaneColumn()) * kVector;

  const int key_tiles = static_cast<int>((shape.keys + kEdge - 1) / kEdge);
  const int group = static_cast<int>(shape.group);
  const int splits = pass.sums.splits;
  const int tiles = pass.sums.tiles;
  const std::int64_t count = shape.batch * shape.kv_heads * splits;
  for (std::int64_t block = BlockIndex(); block < count; block += GridSize()) {
    const int split = static_cast<int>(block % splits);
    const std::int64_t kv_head = block / splits % shape.kv_heads;
    const std::int64_t b = block / splits / shape.kv_heads;
    const std::int64_t h0 = kv_head * shape.group;
    C* const query_sums =
        pass.sums.data +
        (((split * shape.batch + b) * shape.heads + h0) * tiles * kEdge + Tile::LaneRow()) * kEdge +
        x;
    // Tiles before this one have sums, the others have none.
    int written = 0;
    for (int turn = 0; turn * splits < key_tiles; ++turn) {
      // Back and forth: where attention is causal, the first keys have most queries.
      const int place = turn % 2 == 0 ? split : splits - 1 - split;
      std::int64_t s0 = std::int64_t{kEdge} * (turn * splits + place);
      if (s0 >= shape.keys) break;
      const std::int64_t tile_end = Min<std::int64_t>(shape.keys, s0 + kEdge);
      do {
        const std::int64_t rows =
            (kSamples ? Min<std::int64_t>(shape.SampleEnd(s0, shape.keys), tile_end) : tile_end) -
            s0;
        const HeadRange seen = shape.QueriesOf(s0, s0 + rows - 1);
        const std::int64_t first_tile = Min<std::int64_t>(seen.begin / kEdge, tiles);
        const std::int64_t end_tile = Min<std::int64_t>((seen.end + kEdge - 1) / kEdge, tiles);
        QueryWalk walk;
        walk.begin = static_cast<int>(first_tile);
        walk.end = seen.end > seen.begin ? static_cast<int>(end_tile) : walk.begin;
        walk.group = group;
        ClearSums<Tile>(query_sums, tiles, group, written, walk.begin);

        typename Tile::Sums sums = {};  // of the team: gradients of values, or of keys
        {
          typename Tile::template KeyLoader<kThreads> loader;
          SyncBlock();
          loader.Fetch(args.k.At(b, kv_head, s0), args.k.row, rows, shape.head_size, args.vector);
          loader.Put(keys);
          loader.Fetch(args.v.At(b, kv_head, s0), args.v.row, rows, shape.head_size, args.vector);
          loader.Put(values);
        }
        if (walk.size() > 0) {
          QueryLoader<S, kSamples> loader;
          loader.Fetch(args, b, h0, std::int64_t{walk.begin} * kEdge, seen);
          loader.Put(queries, out_grads);
        }
        for (int i = 0; i < walk.size(); ++i) {
          const std::int64_t h = h0 + walk.Head(i);
          const std::int64_t t0 = std::int64_t{walk.Tile(i)} * kEdge;
          SyncBlock();
          typename Tile::Sums products = {};
          Tile::Multiply(products, rows_of_team, columns_of_team, depth);
          C of_rows[kLaneEdge];  // lse in powers of two, or delta times scale
          {
            const C* from = team == 0 ? args.lse.At(b, h, t0) : args.delta.At(b, h, t0);
            const std::int64_t step = team == 0 ? args.lse.row : args.delta.row;
            const C factor = team == 0 ? std::numbers::log2e_v<C> : scale;
            SIMT_UNROLL
            for (int r = 0; r < kLaneEdge; ++r) {
              const int row = Tile::QueryRow(r);
              of_rows[r] = t0 + row < shape.queries ? Load(from + row * step) * factor : C(0);
            }
          }
          std::uint64_t kept = 0;
          if (drops) kept = Tile::Kept(shape, b * shape.heads + h, t0, s0);
          if (team == 0) {
            SIMT_UNROLL
            for (int r = 0; r < kLaneEdge; ++r) {
              SIMT_UNROLL
              for (int j = 0; j < kLaneEdge; ++j)
                products[r][j] = FastExp2(products[r][j] * power_scale - of_rows[r]);
            }
            const HeadRange first = shape.VisibleKeys(t0);
            const HeadRange last = shape.VisibleKeys(t0 + kEdge - 1);
            if (s0 < last.begin || s0 + kEdge > first.end || t0 + kEdge > shape.queries ||
                (kSamples && rows < kEdge)) {
              std::uint64_t visible = Tile::Seen(shape, t0, s0);
              if constexpr (kSamples) visible &= Tile::KeysBefore(rows);
              SIMT_UNROLL
              for (int r = 0; r < kLaneEdge; ++r) {
                SIMT_UNROLL
                for (int j = 0; j < kLaneEdge; ++j)
                  products[r][j] = Tile::Has(visible, r, j) ? products[r][j] : C(0);
              }
            }
            SIMT_UNROLL
            for (int r = 0; r < kLaneEdge; ++r) {
              if (drops) {
                Tile::PutRow(grads, r, products[r]);  // The other team needs them undropped.
                SIMT_UNROLL
                for (int j = 0; j < kLaneEdge; ++j)
                  products[r][j] *= Tile::Has(kept, r, j) ? keep : C(0);
              }
              Tile::PutRow(weights, r, products[r]);
            }
          }
          SyncBlock();
          if (team == 0) {
            Tile::SumOverQueries(sums, weights_of_team, summed_by_team, 0, kAhead);
          } else {
            if (drops) {
              SIMT_UNROLL
              for (int r = 0; r < kLaneEdge; ++r) {
                SIMT_UNROLL
                for (int j = 0; j < kLaneEdge; ++j)
                  products[r][j] *= Tile::Has(kept, r, j) ? keep : C(0);
              }
            }
            SIMT_UNROLL
            for (int r = 0; r < kLaneEdge; ++r) {
              C undropped[kLaneEdge];
              Tile::GetRow(undropped, undropped_weights, r);
              SIMT_UNROLL
              for (int j = 0; j < kLaneEdge; ++j) {
                const C grad = undropped[j] * (products[r][j] * scale - of_rows[r]);
                products[r][j] = undropped[j] == C(0) ? C(0) : grad;
              }
              Tile::PutRow(grads, r, products[r]);
            }
          }
          SyncBlock();
          // Without a condition around it, so that registers are taken from here to Put alone.
          const bool more = i + 1 < walk.size();
          const int next = more ? i + 1 : i;
          QueryLoader<S, kSamples> loader;
          loader.Fetch(args, b, h0 + walk.Head(next),
                       more ? std::int64_t{walk.Tile(next)} * kEdge : shape.queries, seen);
          Tile::SumOverQueries(sums, weights_of_team, summed_by_team, team == 0 ? kAhead : 0,
                               kEdge);
          SyncBlock();
          loader.Put(queries, out_grads);

          C* const to =
              query_sums + (std::int64_t{walk.Head(i)} * tiles + walk.Tile(i)) * kEdge * kEdge;
          const bool adds = walk.Tile(i) < written;
          Vec<C, kVector> before[kLaneEdge] = {};
          SIMT_UNROLL
          for (int r = 0; r < kLaneEdge; ++r) {
            if (adds)
              before[r] = Load<kVector>(static_cast<const C*>(to + r * Tile::kLanes * kEdge));
          }
          C query_grads[kLaneEdge][kVector] = {};
          Tile::SumOverKeys(query_grads, grads, keys, x);
          SIMT_UNROLL
          for (int r = 0; r < kLaneEdge; ++r) {
            const std::int64_t t = t0 + Tile::QueryRow(r);
            const bool own = !kSamples || (t >= seen.begin && t < seen.end);
            SIMT_UNROLL
            for (int v = 0; v < kVector; ++v)
              before[r][v] += own ? query_grads[r][v] : C(0);
            Store(to + r * Tile::kLanes * kEdge, before[r]);
          }
        }
        written = Max(written, walk.end);

        const HeadRows<S>& result = team == 0 ? args.grad_v : args.grad_k;
        SIMT_UNROLL
        for (int i = 0; i < kLaneEdge; ++i) {
          const int row = Tile::LaneRow() * kLaneEdge + i;
          if (row < rows)
            Tile::WriteRow(sums[i], result.At(b, kv_head, s0 + row), shape.head_size, args.vector);
        }
        s0 += rows;
      } while (kSamples && s0 < tile_end);
    }
    ClearSums<Tile>(query_sums, tiles, group, written, tiles);
  }
}

// grad_q from its parts, a vector a lane.
template <typename S>
SIMT_KERNEL void AddQuerySumsKernel(PassArguments<S> pass) {
  using Tile = SquareTile<S>;
  using C = ComputeType<S>;
  constexpr int kVector = Tile::kVector;
  constexpr int kPerRow = Tile::kEdge / kVector;
  const AttentionGradients<S>& args = pass.tensors;
  const AttentionShape& shape = args.shape;
  const std::int64_t rows = pass.sums.tiles * Tile::kEdge;  // of a head
  const std::int64_t part = shape.batch * shape.heads * rows * Tile::kEdge;
  const std::int64_t count = shape.batch * shape.heads * shape.queries * kPerRow;
  for (std::int64_t i = GlobalThreadIndex(); i < count; i += GlobalThreadCount()) {
    const std::int64_t x = i % kPerRow * kVector;
    const std::int64_t t = i / kPerRow % shape.queries;
    const std::int64_t head = i / kPerRow / shape.queries;
    if (x >= shape.head_size) continue;
    const C* from = pass.sums.data + (head * rows + t) * Tile::kEdge + x;
    Vec<C, kVector> sum = Load<kVector>(from);
    for (int split = 1; split < pass.sums.splits; ++split) {
      const Vec<C, kVector> next = Load<kVector>(from + split * part);
      SIMT_UNROLL
      for (int v = 0; v < kVector; ++v)
        sum[v] += next[v];
    }
    S* to = args.grad_q.At(head / shape.heads, head % shape.heads, t) + x;
    Vec<S, kVector> values;
    SIMT_UNROLL
    for (int v = 0; v < kVector; ++v)
      values[v] = FromCompute<S>(sum[v]);
    if (args.vector) {
      Store(to, values);
    } else {
      SIMT_UNROLL
      for (int v = 0; v < kVector; ++v) {
        if (x + v < shape.head_size) Store(to + v, values[v]);
      }
    }
  }
}

// In how many parts the keys of each of `heads` heads are split on a device that runs `resident`
// blocks at once: with the fewest tiles of keys in a row, and then the fewest parts to add up.
std::int64_t SplitsOf(std::int64_t heads, std::int64_t key_tiles, std::int64_t resident) {
  constexpr std::int64_t kMaxSplits = 8;
  const auto tiles_in_a_row = [&](std::int64_t splits) {
    const std::int64_t rounds = (heads * splits + resident - 1) / resident;
    return rounds * ((key_tiles + splits - 1) / splits);
  };
  std::int64_t best = 1;
  for (std::int64_t splits = 2; splits <= std::min(kMaxSplits, key_tiles); ++splits) {
    if (tiles_in_a_row(splits) < tiles_in_a_row(best)) best = splits;
  }
  return best;
}

}  // namespace

template <typename S>
bool AttentionGradientsInOnePass(const Context& context, const AttentionGradients<S>& args) {
  if constexpr (!kHasSquareTiles<S>) {
    return false;
  } else {
    using Tile = SquareTile<S>;
    using C = ComputeType<S>;
    constexpr std::size_t kSharedBytes = 6 * Tile::kElements * sizeof(C);
    constexpr std::int64_t kBlocksOfAMultiprocessor = 2;
    const AttentionShape& shape = args.shape;
    const std::int64_t heads = shape.batch * shape.kv_heads;
    const std::int64_t key_tiles = (shape.keys + Tile::kEdge - 1) / Tile::kEdge;
    if (shape.head_size > Tile::kEdge || heads == 0 || key_tiles == 0 ||
        MaxDynamicSharedBytes(context) < kSharedBytes)
      return false;
    const std::int64_t resident = kBlocksOfAMultiprocessor * MultiprocessorCount(context);
    const std::int64_t splits = SplitsOf(heads, key_tiles, resident);
    // The other kernels, with a block for each tile, keep more of the device busy.
    if (splits < key_tiles && heads * splits < resident) return false;

    const std::int64_t tiles = (shape.queries + Tile::kEdge - 1) / Tile::kEdge;
    const Tensor sums =
        Tensor::Empty({splits, shape.batch, shape.heads, tiles * Tile::kEdge, Tile::kEdge},
                      DataTypeOf<C>(), context.device);
    const PassArguments<S> pass{
        args, {sums.data<C>(), static_cast<int>(splits), static_cast<int>(tiles)}};
    Geometry geometry = Rows(heads * splits, kThreads);
    geometry.dynamic_shared_bytes = kSharedBytes;
    Launch(context, geometry,
           shape.samples == nullptr ? GradientsKernel<S, false> : GradientsKernel<S, true>, pass);
    const std::int64_t vectors =
        shape.batch * shape.heads * shape.queries * (Tile::kEdge / Tile::kVector);
    Launch(context, Linear(vectors), AddQuerySumsKernel<S>, pass);
    return true;
  }
}

template bool AttentionGradientsInOnePass(const Context&, const AttentionGradients<float>&);
template bool AttentionGradientsInOnePass(const Context&, const AttentionGradients<double>&);
template bool AttentionGradientsInOnePass(const Context&, const AttentionGradients<Float16>&);
template bool AttentionGradientsInOnePass(const Context&, const AttentionGradients<BFloat16>&);

}  // namespace infini_train::simt
