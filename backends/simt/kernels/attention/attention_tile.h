#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/attention/attention_heads.h"
#include "backends/simt/tile.h"

namespace infini_train::simt {

/// How a block of lanes works on a tile of attention weights, kRows of its "own" rows (queries, or
/// keys in the gradients of keys and values) by kColumns of those that it walks along: 8 by 16
/// lanes with kLaneRows by kLaneColumns weights each. S is the tensors' element type.
template <typename S, int kHeadSize>
struct AttentionTile {
  using C = ComputeType<S>;
  static constexpr int kThreads = 128;
  static constexpr int kGroup = 16;  ///< lanes that share rows, a logical group
  static constexpr int kLaneRows = 4;
  static constexpr int kLaneColumns = kMaxVectorWidth<C>;
  static constexpr int kRows = kThreads / kGroup * kLaneRows;
  static constexpr int kColumns = kGroup * kLaneColumns;
  /// Elements of the head size that a product of rows and columns takes at once.
  static constexpr int kDepth = 8 * kMaxVectorWidth<C>;
  /// Sums over columns come in slices of kColumns of the head's elements.
  static constexpr int kSlices = kHeadSize / kColumns;
  static constexpr int kRowStride = kRows + kMaxVectorWidth<C>;
  static constexpr int kColumnStride = kColumns + kMaxVectorWidth<C>;
  /// Shared elements for pieces of the operands, and for a tile of weights.
  static constexpr int kStaging =
      std::max(kDepth * (kRowStride + kColumnStride), kColumns* kColumnStride);
  static constexpr int kWeights = kColumns * kRowStride;

  /// A lane's weights.
  using Weights = C[kLaneRows][kLaneColumns];
  /// A lane's part of a [kRows, head size] sum.
  using Sums = C[kSlices][kLaneRows][kLaneColumns];

  SIMT_DEVICE static int Row() { return ThreadIndex() / kGroup * kLaneRows; }
  SIMT_DEVICE static int Column() { return ThreadIndex() % kGroup * kLaneColumns; }

  /// weights += rows . columns: products of `row_count` rows of one matrix and `column_count` of
  /// another over the head size. Ends with a barrier.
  SIMT_DEVICE static void Multiply(Weights& weights, Shared<C> staging, const S* rows,
                                   std::int64_t row_stride, std::int64_t row_count,
                                   const S* columns, std::int64_t column_stride,
                                   std::int64_t column_count, std::int64_t head_size, bool vector) {
    TileLoader<S, kThreads, kRows, kDepth, kRowStride> row_loader;
    TileLoader<S, kThreads, kColumns, kDepth, kColumnStride> column_loader;
    const Shared<C> row_tile = staging.Sub(0, kDepth * kRowStride);
    const Shared<C> column_tile = staging.Sub(kDepth * kRowStride, kDepth * kColumnStride);
    row_loader.Fetch(rows, row_stride, 1, true, vector, row_count, head_size);
    column_loader.Fetch(columns, column_stride, 1, true, vector, column_count, head_size);
    for (std::int64_t x = 0; x < head_size; x += kDepth) {
      row_loader.Put(row_tile, true);
      column_loader.Put(column_tile, true);
      SyncBlock();
      const std::int64_t next = x + kDepth;
      if (next < head_size) {
        row_loader.Fetch(rows + next, row_stride, 1, true, vector, row_count, head_size - next);
        column_loader.Fetch(columns + next, column_stride, 1, true, vector, column_count,
                            head_size - next);
      }
      MultiplyTiles<kDepth, kMaxVectorWidth<C>, kMaxVectorWidth<C>, kRowStride, kColumnStride>(
          weights, row_tile, Row(), column_tile, Column());
      SyncBlock();
    }
  }

  /// Writes a lane's weights to shared memory, as Accumulate reads them after its first barrier.
  SIMT_DEVICE static void PutWeights(Shared<C> shared, const Weights& weights) {
    constexpr int kVector = kMaxVectorWidth<C>;
    SIMT_UNROLL
    for (int j = 0; j < kLaneColumns; ++j) {
      SIMT_UNROLL
      for (int i = 0; i < kLaneRows; i += kVector) {
        Vec<C, kVector> values;
        SIMT_UNROLL
        for (int x = 0; x < kVector; ++x)
          values[x] = weights[i + x][j];
        shared.Store((Column() + j) * kRowStride + Row() + i, values);
      }
    }
  }

  /// sums += weights (in shared memory) times `column_count` rows of a [kColumns, head size]
  /// matrix. Ends with a barrier.
  SIMT_DEVICE static void Accumulate(Sums& sums, Shared<C> staging, Shared<C> weights,
                                     const S* columns, std::int64_t column_stride,
                                     std::int64_t column_count, std::int64_t head_size,
                                     bool vector) {
    TileLoader<S, kThreads, kColumns, kColumns, kColumnStride> loader;
    const Shared<C> tile = staging.Sub(0, kColumns * kColumnStride);
    SIMT_UNROLL
    for (int slice = 0; slice < kSlices; ++slice) {
      const int x = slice * kColumns;
      if (x < head_size) {
        loader.Fetch(columns + x, 1, column_stride, false, vector, head_size - x, column_count);
        loader.Put(tile, false);
        SyncBlock();
        MultiplyTiles<kColumns, kMaxVectorWidth<C>, kMaxVectorWidth<C>, kRowStride, kColumnStride>(
            sums[slice], weights, Row(), tile, Column());
        SyncBlock();
      }
    }
  }

  /// Writes sums to the first `row_count` rows of a [kRows, head size] matrix.
  SIMT_DEVICE static void Write(const Sums& sums, S* rows, std::int64_t row_stride,
                                std::int64_t row_count, std::int64_t head_size, bool vector) {
    SIMT_UNROLL
    for (int slice = 0; slice < kSlices; ++slice) {
      const std::int64_t x = slice * kColumns + Column();
      SIMT_UNROLL
      for (int i = 0; i < kLaneRows; ++i) {
        if (Row() + i >= row_count || x >= head_size) continue;
        S* to = rows + (Row() + i) * row_stride + x;
        Vec<S, kLaneColumns> values;
        SIMT_UNROLL
        for (int j = 0; j < kLaneColumns; ++j)
          values[j] = FromCompute<S>(sums[slice][i][j]);
        if (vector) {
          Store(to, values);
        } else {
          SIMT_UNROLL
          for (int j = 0; j < kLaneColumns && x + j < head_size; ++j)
            Store(to + j, values[j]);
        }
      }
    }
  }
};

/// Functors on several independent numbers of a lane, as one shuffle moves them.
struct RowSum {
  template <typename C, int kCount>
  SIMT_DEVICE Vec<C, kCount> operator()(Vec<C, kCount> a, const Vec<C, kCount>& b) const {
    SIMT_UNROLL
    for (int i = 0; i < kCount; ++i)
      a[i] += b[i];
    return a;
  }
};

struct RowMax {
  template <typename C, int kCount>
  SIMT_DEVICE Vec<C, kCount> operator()(Vec<C, kCount> a, const Vec<C, kCount>& b) const {
    SIMT_UNROLL
    for (int i = 0; i < kCount; ++i)
      a[i] = b[i] > a[i] ? b[i] : a[i];
    return a;
  }
};

/// Launches a kernel, the one that `kernel_for` has for the bound of the head size that
/// DispatchHeadSize finds, with a block for each tile of `rows` rows of `heads` heads.
template <typename S, typename Arguments, typename KernelFor>
void LaunchTiles(const Context& context, std::int64_t heads, std::int64_t rows,
                 const Arguments& args, const KernelFor& kernel_for) {
  DispatchHeadSize(args.shape.head_size, [&](auto bound) {
    using Tile = AttentionTile<S, decltype(bound)::value>;
    const std::int64_t tiles = (rows + Tile::kRows - 1) / Tile::kRows;
    Launch(context, Rows(args.shape.batch * heads * tiles, Tile::kThreads), kernel_for(bound),
           args);
  });
}

}  // namespace infini_train::simt
