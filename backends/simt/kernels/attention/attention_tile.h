#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/attention/attention_heads.h"
#include "backends/simt/tile.h"

namespace infini_train::simt {

/// Rows of a matrix that a block of lanes moves to shared memory, converted to the compute type:
/// kDepth elements of kCount rows, in steps of kVector. Each lane of a group later reads kPerLane
/// neighbouring rows; row r lies at `SlotOf(r)`, so that the rows that lanes read together
/// neighbour each other and, with kStride an odd number of vectors, come from different banks.
template <typename S, int kThreads, int kCount, int kPerLane, int kDepth, int kStride>
class RowLoader {
 public:
  using C = ComputeType<S>;

  /// Reads `count` rows of `depth` elements but the first `skipped`, zeros there and beyond.
  /// `vector` promises that rows are aligned to kVector elements and that depth is a multiple of
  /// it.
  SIMT_DEVICE void Fetch(const S* from, std::int64_t stride, std::int64_t count, std::int64_t depth,
                         bool vector, std::int64_t skipped = 0) {
    const int x = ThreadIndex() % kPerRow * kVector;
    const int first = ThreadIndex() / kPerRow;
    const S* piece = from + first * stride + x;
    if (x >= depth) count = 0;
    SIMT_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      const int row = first + i * kStep;
      const bool inside = row < count && (skipped <= 0 || row >= skipped);
      if (vector) {
        pieces_[i] = inside ? Load<kVector>(piece + i * kStep * stride) : Vec<S, kVector>{};
      } else {
        SIMT_UNROLL
        for (int v = 0; v < kVector; ++v) {
          pieces_[i][v] =
              inside && x + v < depth ? Load(piece + i * kStep * stride + v) : FromCompute<S>(C(0));
        }
      }
    }
  }

  /// Writes to shared memory what the last Fetch has read.
  SIMT_DEVICE void Put(Shared<C> to) const {
    const int x = ThreadIndex() % kPerRow * kVector;
    SIMT_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      Vec<C, kVector> values;
      SIMT_UNROLL
      for (int v = 0; v < kVector; ++v)
        values[v] = ToCompute(pieces_[i][v]);
      to.Store(SlotOf(ThreadIndex() / kPerRow + i * kStep) * kStride + x, values);
    }
  }

 private:
  static constexpr int kVector = kMaxVectorWidth<C>;
  static constexpr int kPerRow = kDepth / kVector;
  static constexpr int kStep = kThreads / kPerRow;  // rows that the block reads at once
  static constexpr int kPieces = kCount / kStep;
  static_assert(kPieces * kStep == kCount && kStep * kPerRow == kThreads);

  SIMT_DEVICE static int SlotOf(int row) {
    return row % kPerLane * (kCount / kPerLane) + row / kPerLane;
  }

  Vec<S, kVector> pieces_[kPieces] = {};
};

/// Some rows of a matrix.
template <typename S>
struct MatrixRows {
  const S* data;
  std::int64_t stride;
  std::int64_t count;
};

/// How a block of lanes works on a tile of attention weights, kRows of its "own" rows (queries, or
/// keys in the gradients of keys and values) by kColumns of those that it walks along: 8 by 16
/// lanes with kLaneRows by kLaneColumns weights each. S is the tensors' element type.
template <typename S, int kHeadSize, int kRowsOfALane>
struct AttentionTile {
  using C = ComputeType<S>;
  static constexpr int kVector = kMaxVectorWidth<C>;
  static constexpr int kThreads = 128;
  static constexpr int kGroup = 16;  ///< lanes that share rows, a logical group
  static constexpr int kGroups = kThreads / kGroup;
  static constexpr int kLaneRows = kRowsOfALane;
  static constexpr int kLaneColumns = kVector;
  static constexpr int kRows = kGroups * kLaneRows;
  static constexpr int kColumns = kGroup * kLaneColumns;
  /// Elements of the head size that are in shared memory at once, a slice.
  static constexpr int kDepth = kGroup * kVector;
  static constexpr int kSlices = kHeadSize / kDepth;
  static constexpr int kStride = kDepth + kVector;

  /// A lane's weights.
  using Weights = C[kLaneRows][kLaneColumns];
  /// A lane's part of a [kRows, head size] sum.
  using Sums = C[kSlices][kLaneRows][kVector];

  /// The block's shared memory: a slice of the own rows and one of the others, and the weights.
  struct Memory {
    static constexpr std::size_t kBytes = (2 * kRows + kColumns) * kStride * sizeof(C);

    SIMT_DEVICE explicit Memory(Shared<C> all)
        : rows(all.Sub(0, kRows * kStride)),
          columns(all.Sub(kRows * kStride, kColumns * kStride)),
          weights(all.Sub((kRows + kColumns) * kStride, kRows * kStride)) {}

    Shared<C> rows, columns, weights;
  };

  SIMT_DEVICE static int Group() { return ThreadIndex() / kGroup; }
  SIMT_DEVICE static int Lane() { return ThreadIndex() % kGroup; }
  SIMT_DEVICE static int Row() { return Group() * kLaneRows; }
  SIMT_DEVICE static int Column() { return Lane() * kLaneColumns; }

  /// Loads a slice from element `x` of `rows`; a barrier has to follow.
  SIMT_DEVICE static void LoadRows(const Memory& memory, const MatrixRows<S>& rows, std::int64_t x,
                                   std::int64_t head_size, bool vector) {
    RowLoader<S, kThreads, kRows, kLaneRows, kDepth, kStride> loader;
    loader.Fetch(rows.data + x, rows.stride, rows.count, head_size - x, vector);
    loader.Put(memory.rows);
  }
  SIMT_DEVICE static void LoadColumns(const Memory& memory, const MatrixRows<S>& columns,
                                      std::int64_t x, std::int64_t head_size, bool vector) {
    RowLoader<S, kThreads, kColumns, kLaneColumns, kDepth, kStride> loader;
    loader.Fetch(columns.data + x, columns.stride, columns.count, head_size - x, vector);
    loader.Put(memory.columns);
  }

  /// weights += rows . columns over the head size. Without `kLoadsRows` the rows, of one slice, are
  /// in shared memory. Ends with a barrier, with the last slices still there.
  template <bool kLoadsRows = true>
  SIMT_DEVICE static void Multiply(Weights& weights, const Memory& memory,
                                   const MatrixRows<S>& rows, const MatrixRows<S>& columns,
                                   std::int64_t head_size, bool vector) {
    for (std::int64_t x = 0; x < head_size; x += kDepth) {
      if constexpr (kLoadsRows) LoadRows(memory, rows, x, head_size, vector);
      LoadColumns(memory, columns, x, head_size, vector);
      SyncBlock();
      MultiplySlice(weights, memory, static_cast<int>(Min<std::int64_t>(kDepth, head_size - x)));
      SyncBlock();
    }
  }

  /// Writes a lane's weights to shared memory, for the lanes of its group.
  SIMT_DEVICE static void PutWeights(const Memory& memory, const Weights& weights) {
    SyncGroup<kGroup>();
    SIMT_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < kLaneColumns; ++j)
        memory.weights[(i * kGroups + Group()) * kStride + j * kGroup + Lane()] = weights[i][j];
    }
    SyncGroup<kGroup>();
  }

  /// sums += weights (in shared memory) times columns. Without `kLoadsColumns` the columns, of one
  /// slice, are in shared memory. Ends with a barrier.
  template <bool kLoadsColumns = true>
  SIMT_DEVICE static void Accumulate(Sums& sums, const Memory& memory, const MatrixRows<S>& columns,
                                     std::int64_t head_size, bool vector) {
    SIMT_UNROLL
    for (int slice = 0; slice < kSlices; ++slice) {
      const int x = slice * kDepth;
      if (x < head_size) {
        if constexpr (kLoadsColumns) {
          LoadColumns(memory, columns, x, head_size, vector);
          SyncBlock();
        }
        AccumulateSlice(sums[slice], memory);
        SyncBlock();
      }
    }
  }

  /// Writes sums to the first `row_count` rows of a [kRows, head size] matrix.
  SIMT_DEVICE static void Write(const Sums& sums, S* rows, std::int64_t row_stride,
                                std::int64_t row_count, std::int64_t head_size, bool vector) {
    SIMT_UNROLL
    for (int slice = 0; slice < kSlices; ++slice) {
      const std::int64_t x = slice * kDepth + Lane() * kVector;
      SIMT_UNROLL
      for (int i = 0; i < kLaneRows; ++i) {
        if (Row() + i >= row_count || x >= head_size) continue;
        S* to = rows + (Row() + i) * row_stride + x;
        Vec<S, kVector> values;
        SIMT_UNROLL
        for (int v = 0; v < kVector; ++v)
          values[v] = FromCompute<S>(sums[slice][i][v]);
        if (vector) {
          Store(to, values);
        } else {
          SIMT_UNROLL
          for (int v = 0; v < kVector && x + v < head_size; ++v)
            Store(to + v, values[v]);
        }
      }
    }
  }

 private:
  // Both products take vectors along the sum's direction from shared memory: kLaneRows + kVector
  // loads for kLaneRows * kVector^2 multiplications.
  SIMT_DEVICE static void MultiplySlice(Weights& weights, const Memory& memory, int depth) {
    const int row = Group() * kStride;
    const int column = Lane() * kStride;
    for (int x = 0; x < depth; x += kVector) {
      Vec<C, kVector> b[kLaneColumns];
      SIMT_UNROLL
      for (int j = 0; j < kLaneColumns; ++j)
        b[j] = memory.columns.template Load<kVector>(j * kGroup * kStride + column + x);
      SIMT_UNROLL
      for (int i = 0; i < kLaneRows; ++i) {
        const Vec<C, kVector> a =
            memory.rows.template Load<kVector>(i * kGroups * kStride + row + x);
        SIMT_UNROLL
        for (int v = 0; v < kVector; ++v) {
          SIMT_UNROLL
          for (int j = 0; j < kLaneColumns; ++j)
            weights[i][j] += a[v] * b[j][v];
        }
      }
    }
  }

  SIMT_DEVICE static void AccumulateSlice(C (&sums)[kLaneRows][kVector], const Memory& memory) {
    const int row = Group() * kStride;
    const int element = Lane() * kVector;
    for (int s = 0; s < kColumns; s += kVector) {
      Vec<C, kVector> b[kVector];
      SIMT_UNROLL
      for (int v = 0; v < kVector; ++v)
        b[v] = memory.columns.template Load<kVector>((s + v) * kStride + element);
      SIMT_UNROLL
      for (int i = 0; i < kLaneRows; ++i) {
        const Vec<C, kVector> a =
            memory.weights.template Load<kVector>(i * kGroups * kStride + row + s);
        SIMT_UNROLL
        for (int v = 0; v < kVector; ++v) {
          SIMT_UNROLL
          for (int j = 0; j < kVector; ++j)
            sums[i][j] += a[v] * b[v][j];
        }
      }
    }
  }
};

/// The rows of a lane where it holds `kSums` sums over them in registers, beside the weights.
template <typename S, int kHeadSize, int kSums>
inline constexpr int kAttentionLaneRows = sizeof(ComputeType<S>) == 4 && kHeadSize* kSums <= 128
                                              ? 8
                                              : 4;

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

/// Replaces each number by its reduction over the lanes of the group; `op` takes vectors.
template <int kGroup, typename C, int kCount, typename Op>
SIMT_DEVICE void ReduceRows(C (&values)[kCount], Op op) {
  constexpr int kVector = kMaxVectorWidth<C>;
  SIMT_UNROLL
  for (int i = 0; i < kCount; i += kVector) {
    Vec<C, kVector> piece;
    SIMT_UNROLL
    for (int v = 0; v < kVector; ++v)
      piece[v] = values[i + v];
    piece = ReduceGroup<kGroup>(piece, op);
    SIMT_UNROLL
    for (int v = 0; v < kVector; ++v)
      values[i + v] = piece[v];
  }
}

/// Which of a lane's kCount neighbouring keys, or queries, are in a range: in 32 bits, and once for
/// all of them.
struct LaneRange {
  template <int kCount>
  SIMT_DEVICE static LaneRange Clip(const HeadRange& range, std::int64_t first) {
    return {static_cast<int>(Max<std::int64_t>(0, Min<std::int64_t>(kCount, range.begin - first))),
            static_cast<int>(Max<std::int64_t>(0, Min<std::int64_t>(kCount, range.end - first)))};
  }
  SIMT_DEVICE bool Has(int i) const { return i >= begin && i < end; }

  int begin, end;
};

/// Launches a kernel, the one that `kernel_for` has for the bound of the head size that
/// DispatchHeadSize finds, with a block for each tile of `rows` rows of `heads` heads. kSums as in
/// kAttentionLaneRows.
template <typename S, int kSums, typename Arguments, typename KernelFor>
void LaunchTiles(const Context& context, std::int64_t heads, std::int64_t rows,
                 const Arguments& args, const KernelFor& kernel_for) {
  DispatchHeadSize(args.shape.head_size, [&](auto bound) {
    constexpr int kBound = decltype(bound)::value;
    using Tile = AttentionTile<S, kBound, kAttentionLaneRows<S, kBound, kSums>>;
    const std::int64_t tiles = (rows + Tile::kRows - 1) / Tile::kRows;
    Geometry geometry = Rows(args.shape.batch * heads * tiles, Tile::kThreads);
    geometry.dynamic_shared_bytes = Tile::Memory::kBytes;
    Launch(context, geometry, kernel_for(bound), args);
  });
}

}  // namespace infini_train::simt
