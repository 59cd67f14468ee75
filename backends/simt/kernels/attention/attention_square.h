#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/attention/attention_tile.h"
#include "backends/simt/tile.h"

namespace infini_train::simt {

/// Square tiles of 64 rows by 64 elements in shared memory, for heads of at most 64 elements of
/// four bytes, and how a team of 64 lanes multiplies two of them. A lane has 8 by 8 elements of the
/// product, so that a read of 16 bytes serves 16 multiplications of each lane.
///
/// Lanes lie 8 by 8 over a product. Of the 16 that a chip serves together two have different rows
/// and eight different columns, neighbours in pairs: then no bank is asked twice, by rows (which
/// are an odd number of vectors apart) or by vectors of one row.
template <typename S>
struct SquareTile {
  using C = ComputeType<S>;
  static_assert(sizeof(C) == 4);
  static constexpr int kVector = kMaxVectorWidth<C>;
  static constexpr int kEdge = 64;
  static constexpr int kTeam = 64;
  static constexpr int kLanes = 8;                  ///< of the team along each edge
  static constexpr int kLaneEdge = kEdge / kLanes;  ///< of a lane's part of a product
  static constexpr int kVectors = kLaneEdge / kVector;
  static constexpr int kStride = kEdge + kVector;
  static constexpr int kElements = kEdge * kStride;  ///< shared memory that a tile takes

  static constexpr int kStep = 8;  ///< of a sum, without a branch

  using Sums = C[kLaneEdge][kLaneEdge];

  /// Moves rows to shared memory, kThreads lanes together. Keys are stored so that a lane's are
  /// neighbours: row r lies at SlotOf(r).
  template <int kThreads>
  using Loader = RowLoader<S, kThreads, kEdge, 1, kEdge, kStride>;
  template <int kThreads>
  using KeyLoader = RowLoader<S, kThreads, kEdge, kLaneEdge, kEdge, kStride>;
  SIMT_DEVICE static constexpr int SlotOf(int key) {
    return key % kLaneEdge * kLanes + key / kLaneEdge;
  }

  SIMT_DEVICE static int LaneRow() { return ThreadIndex() % 2 + ThreadIndex() % kTeam / 16 * 2; }
  SIMT_DEVICE static int LaneColumn() { return ThreadIndex() / 2 % kLanes; }

  // In tiles of weights, a row for each query and a column for each key, row i of a lane is
  // QueryRow(i) and its columns are neighbours from Key() on.
  SIMT_DEVICE static int QueryRow(int i) { return i * kLanes + LaneRow(); }
  SIMT_DEVICE static int Key() { return LaneColumn() * kLaneEdge; }

  /// weights += queries . keys over the first `depth` elements of their rows, rounded up to kStep.
  SIMT_DEVICE static void Multiply(Sums& weights, Shared<C> queries, Shared<C> keys, int depth) {
    for (int x = 0; x < depth; x += kStep) {
      SIMT_UNROLL
      for (int piece = 0; piece < kStep; piece += kVector)
        MultiplyVectors(weights, queries, LaneRow() * kStride + x + piece, keys,
                        LaneColumn() * kStride + x + piece);
    }
  }

  /// sums += weights times the rows of `keys`, which lie at SlotOf, over all keys: for the lane's
  /// queries, the elements of the vector at `x`.
  SIMT_DEVICE static void SumOverKeys(C (&sums)[kLaneEdge][kVector], Shared<C> weights,
                                      Shared<C> keys, int x) {
    for (int key = 0; key < kEdge; key += kStep) {
      SIMT_UNROLL
      for (int piece = 0; piece < kStep; piece += kVector)
        SumVectors(sums, weights, LaneRow() * kStride + key + piece, keys,
                   (SlotOf(key) + piece * kLanes) * kStride + x);
    }
  }

  /// sums += weights, transposed, times the rows of `queries`, over queries [first, last),
  /// multiples of kStep: for the lane's keys, which are neighbours from LaneRow() * kLaneEdge on.
  SIMT_DEVICE static void SumOverQueries(Sums& sums, Shared<C> weights, Shared<C> queries,
                                         int first, int last) {
    const int row = LaneRow() * kLaneEdge;
    const int column = LaneColumn() * kVector;
    for (int t = first; t < last; t += kStep)
      MultiplyTiles<kStep, kVector, kLanes * kVector, kStride, kStride>(
          sums, weights, t * kStride + row, queries, t * kStride + column);
  }

  /// Writes row i of a product whose columns are elements of a head: vectors that are kLanes
  /// vectors apart.
  SIMT_DEVICE static void WriteRow(const C (&sums)[kLaneEdge], S* row, std::int64_t head_size,
                                   bool vector) {
    SIMT_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      const std::int64_t x = (n * kLanes + LaneColumn()) * kVector;
      if (x >= head_size) continue;
      Vec<S, kVector> values;
      SIMT_UNROLL
      for (int v = 0; v < kVector; ++v)
        values[v] = FromCompute<S>(sums[n * kVector + v]);
      if (vector) {
        Store(row + x, values);
      } else {
        SIMT_UNROLL
        for (int v = 0; v < kVector; ++v) {
          if (x + v < head_size) Store(row + x + v, values[v]);
        }
      }
    }
  }

  /// A lane's weights of a query.
  SIMT_DEVICE static void PutRow(Shared<C> weights, int i, const C (&values)[kLaneEdge]) {
    SIMT_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      Vec<C, kVector> piece;
      SIMT_UNROLL
      for (int v = 0; v < kVector; ++v)
        piece[v] = values[n * kVector + v];
      weights.Store(QueryRow(i) * kStride + Key() + n * kVector, piece);
    }
  }
  SIMT_DEVICE static void GetRow(C (&values)[kLaneEdge], Shared<C> weights, int i) {
    LoadFragment<kLaneEdge, kVector>(values, weights, QueryRow(i) * kStride + Key());
  }

  // Sets of a lane's weights: bit j of byte i for that of its query i and key j, in the tile that
  // begins at query t0 and key s0. A loop makes them, once for all rows: it takes many
  // instructions.

  /// Those of the queries that see the key.
  SIMT_DEVICE static std::uint64_t Seen(const AttentionShape& shape, std::int64_t t0,
                                        std::int64_t s0) {
    std::uint64_t seen = 0;
    const std::int64_t end = Min<std::int64_t>(t0 + kEdge, shape.queries);
    int bit = 0;
    for (std::int64_t t = t0 + LaneRow(); t < end; t += kLanes, bit += kLaneEdge) {
      const LaneRange keys = LaneRange::Clip<kLaneEdge>(shape.VisibleKeys(t), s0 + Key());
      if (keys.begin < keys.end)
        seen |= std::uint64_t{(1u << keys.end) - (1u << keys.begin)} << bit;
    }
    return seen;
  }
  /// Those of the tile's first `count` keys.
  SIMT_DEVICE static std::uint64_t KeysBefore(std::int64_t count) {
    static_assert(kLaneEdge == 8);
    const auto own =
        static_cast<int>(Max<std::int64_t>(0, Min<std::int64_t>(kLaneEdge, count - Key())));
    return std::uint64_t{(1u << own) - 1} * 0x0101010101010101u;
  }
  /// Those that dropout keeps; `head` counts heads through the batch.
  SIMT_DEVICE static std::uint64_t Kept(const AttentionShape& shape, std::int64_t head,
                                        std::int64_t t0, std::int64_t s0) {
    std::uint64_t kept = 0;
    const std::int64_t end = Min<std::int64_t>(t0 + kEdge, shape.queries);
    int bit = 0;
    for (std::int64_t t = t0 + LaneRow(); t < end; t += kLanes, bit += kLaneEdge) {
      const std::int64_t element = (head * shape.queries + t) * shape.keys + s0 + Key();
      kept |= std::uint64_t{shape.dropout.Kept<kLaneEdge>(element)} << bit;
    }
    return kept;
  }
  SIMT_DEVICE static bool Has(std::uint64_t set, int i, int j) {
    return (set >> (i * kLaneEdge + j) & 1) != 0;
  }

 private:
  SIMT_DEVICE static void MultiplyVectors(Sums& weights, Shared<C> queries, int queries_at,
                                          Shared<C> keys, int keys_at) {
    Vec<C, kVector> b[kLaneEdge];
    SIMT_UNROLL
    for (int j = 0; j < kLaneEdge; ++j)
      b[j] = keys.template Load<kVector>(keys_at + j * kLanes * kStride);
    SIMT_UNROLL
    for (int i = 0; i < kLaneEdge; ++i) {
      const Vec<C, kVector> a = queries.template Load<kVector>(queries_at + i * kLanes * kStride);
      SIMT_UNROLL
      for (int v = 0; v < kVector; ++v) {
        SIMT_UNROLL
        for (int j = 0; j < kLaneEdge; ++j)
          weights[i][j] += a[v] * b[j][v];
      }
    }
  }

  // Over kVector keys, whose rows are kLanes apart.
  SIMT_DEVICE static void SumVectors(C (&sums)[kLaneEdge][kVector], Shared<C> weights,
                                     int weights_at, Shared<C> keys, int keys_at) {
    Vec<C, kVector> b[kVector];
    SIMT_UNROLL
    for (int v = 0; v < kVector; ++v)
      b[v] = keys.template Load<kVector>(keys_at + v * kLanes * kStride);
    SIMT_UNROLL
    for (int i = 0; i < kLaneEdge; ++i) {
      const Vec<C, kVector> a = weights.template Load<kVector>(weights_at + i * kLanes * kStride);
      SIMT_UNROLL
      for (int v = 0; v < kVector; ++v) {
        SIMT_UNROLL
        for (int j = 0; j < kVector; ++j)
          sums[i][j] += a[v] * b[v][j];
      }
    }
  }
};

/// Whether tensors of S are worked on in square tiles, where a row holds a head.
template <typename S>
inline constexpr bool kHasSquareTiles = sizeof(ComputeType<S>) == 4;

}  // namespace infini_train::simt
