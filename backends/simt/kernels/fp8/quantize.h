#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/norm/part_sums.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/fp8.h"

/// The pass that quantises a matrix, whatever its numbers are made of.
namespace infini_train::simt {

// A block works on a tile; a lane on kLaneRows by kLaneColumns of it, so that it can pack the codes
// of a column into a word before the tile is transposed in shared memory.
inline constexpr int kQuantizeThreads = 256;
inline constexpr int kTileRows = 128;
inline constexpr int kTileColumns = 64;
inline constexpr int kLaneRows = 4;
inline constexpr int kLaneColumns = 8;
inline constexpr int kLanesAcross = kTileColumns / kLaneColumns;
inline constexpr int kColumnWords = kTileRows / kLaneRows;
static_assert(kLanesAcross * kColumnWords == kQuantizeThreads);
static_assert(sizeof(std::uint32_t) == kLaneRows);
// Few enough that the blocks' maxima do not queue.
inline constexpr std::int64_t kMaxQuantizeBlocks = 4096;

template <typename T>
struct QuantizeProblem {
  std::uint8_t* out;         // [rows, columns], or null
  std::uint8_t* transposed;  // [columns, rows], or null
  ComputeType<T>* partials;  // [tiles down, columns], sums of the columns of tiles, or null
  std::int32_t* amax;        // the bits of a float, or null
  const T* inputs[2];        // [rows, columns]; the second where Make takes two
  const float* scale;
  std::int64_t rows, columns;
};

/// Where word `word` of a column of the tile lies in shared memory: moved about so that neither the
/// lanes that write words of one column each nor those that read a column meet in a bank, in pieces
/// of 16 bytes.
SIMT_DEVICE inline int PlaceOfWord(int column, int word) {
  return column * kColumnWords + (word ^ (column / kLaneColumns * 4));
}

/// The numbers of a lane's piece of an input, zeros outside of the matrix.
template <bool kVector, typename T>
SIMT_DEVICE inline void LoadPiece(T (&piece)[kLaneRows][kLaneColumns], const T* from,
                                  std::int64_t stride, int rows, int columns) {
  constexpr int kWidth = kMaxVectorWidth<T> < kLaneColumns ? kMaxVectorWidth<T> : kLaneColumns;
  SIMT_UNROLL
  for (int r = 0; r < kLaneRows; ++r) {
    SIMT_UNROLL
    for (int c = 0; c < kLaneColumns; c += kWidth) {
      Vec<T, kWidth> values = {};
      if constexpr (kVector) {
        if (r < rows && columns > 0) values = Load<kWidth>(from + r * stride + c);
      } else {
        SIMT_UNROLL
        for (int x = 0; x < kWidth; ++x) {
          if (r < rows && c + x < columns) values[x] = Load(from + r * stride + c + x);
        }
      }
      SIMT_UNROLL
      for (int x = 0; x < kWidth; ++x)
        piece[r][c + x] = values[x];
    }
  }
}

/// Make: `T make(T first, T second)`, the number to quantise; kInputs of its operands are read.
/// kVector: rows and columns allow wide accesses.
template <typename F, int kInputs, bool kVector, typename T, typename Make>
SIMT_KERNEL void QuantizeKernel(QuantizeProblem<T> problem, Make make) {
  using C = ComputeType<T>;
  constexpr int kGroups = kQuantizeThreads / kGroupWidth;
  SIMT_SHARED(std::uint32_t, words, kTileColumns * kColumnWords);
  SIMT_SHARED(C, group_sums, kGroups * kTileColumns);
  const int across = ThreadIndex() % kLanesAcross;
  const int down = ThreadIndex() / kLanesAcross;
  const float scale = Load(problem.scale + 1);
  // Numbers without their sign order like their bits, with NaN above all.
  std::int32_t largest = 0;
  const std::int64_t tiles_across = (problem.columns + kTileColumns - 1) / kTileColumns;
  const std::int64_t tiles_down = (problem.rows + kTileRows - 1) / kTileRows;
  for (std::int64_t tile = BlockIndex(); tile < tiles_across * tiles_down; tile += GridSize()) {
    const std::int64_t tile_row = tile / tiles_across * kTileRows;
    const std::int64_t tile_column = tile % tiles_across * kTileColumns;
    const std::int64_t row = tile_row + down * kLaneRows;
    const std::int64_t column = tile_column + across * kLaneColumns;
    const auto rows =
        static_cast<int>(Min<std::int64_t>(Max<std::int64_t>(problem.rows - row, 0), kLaneRows));
    const auto columns = static_cast<int>(
        Min<std::int64_t>(Max<std::int64_t>(problem.columns - column, 0), kLaneColumns));

    T pieces[kInputs][kLaneRows][kLaneColumns];
    SIMT_UNROLL
    for (int k = 0; k < kInputs; ++k) {
      LoadPiece<kVector>(pieces[k], problem.inputs[k] + row * problem.columns + column,
                         problem.columns, rows, columns);
    }
    std::uint32_t packed[kLaneColumns] = {};
    C sums[kLaneColumns] = {};
    SIMT_UNROLL
    for (int r = 0; r < kLaneRows; ++r) {
      Vec<std::uint8_t, kLaneColumns> codes;
      SIMT_UNROLL
      for (int c = 0; c < kLaneColumns; ++c) {
        const C value = ToCompute(make(pieces[0][r][c], pieces[kInputs - 1][r][c]));
        const auto number = static_cast<float>(value);
        largest = Max(largest, std::bit_cast<std::int32_t>(number) & 0x7FFFFFFF);
        sums[c] += value;
        codes[c] = FromCompute<F>(number * scale).bits;
        packed[c] |= static_cast<std::uint32_t>(codes[c]) << (8 * r);
      }
      if (problem.out == nullptr || r >= rows || columns <= 0) continue;
      std::uint8_t* to = problem.out + (row + r) * problem.columns + column;
      if constexpr (kVector) {
        Store(to, codes);
      } else {
        for (int c = 0; c < columns; ++c)
          Store(to + c, codes[c]);
      }
    }

    if (problem.transposed != nullptr) {
      SIMT_UNROLL
      for (int c = 0; c < kLaneColumns; ++c)
        words[PlaceOfWord(across * kLaneColumns + c, down)] = packed[c];
    }
    if (problem.partials != nullptr) {
      SIMT_UNROLL
      for (int c = 0; c < kLaneColumns; ++c) {
        SIMT_UNROLL
        for (int mask = kLanesAcross; mask < kGroupWidth; mask *= 2)
          sums[c] += ShuffleXor<kGroupWidth>(sums[c], mask);
        if (GroupLane<kGroupWidth>() < kLanesAcross) {
          group_sums[ThreadIndex() / kGroupWidth * kTileColumns + across * kLaneColumns + c] =
              sums[c];
        }
      }
    }
    SyncBlock();
    if (problem.transposed != nullptr) {
      constexpr int kPieceRows = kMaxVectorBytes;
      constexpr int kPieces = kTileRows / kPieceRows;
      for (int i = ThreadIndex(); i < kTileColumns * kPieces; i += kQuantizeThreads) {
        const std::int64_t to_row = tile_row + i % kPieces * kPieceRows;
        const std::int64_t to_column = tile_column + i / kPieces;
        if (to_column >= problem.columns || to_row >= problem.rows) continue;
        const auto codes = std::bit_cast<Vec<std::uint8_t, kPieceRows>>(words.template Load<4>(
            PlaceOfWord(i / kPieces, i % kPieces * (kPieceRows / kLaneRows))));
        std::uint8_t* to = problem.transposed + to_column * problem.rows + to_row;
        if constexpr (kVector) {
          Store(to, codes);
        } else {
          for (int x = 0; x < kPieceRows && to_row + x < problem.rows; ++x)
            Store(to + x, codes[x]);
        }
      }
    }
    if (problem.partials != nullptr && ThreadIndex() < kTileColumns &&
        tile_column + ThreadIndex() < problem.columns) {
      C sum = 0;
      for (int group = 0; group < kGroups; ++group) {
        const C next = group_sums[group * kTileColumns + ThreadIndex()];
        sum += next;
      }
      Store(problem.partials + tile_row / kTileRows * problem.columns + tile_column + ThreadIndex(),
            sum);
    }
    SyncBlock();
  }
  largest = ReduceBlock(largest, MaxOp(), 0);
  if (ThreadIndex() == 0 && problem.amax != nullptr) AtomicMax(problem.amax, largest);
}

/// Quantises make(first[i], second[i]), or make(first[i], first[i]) without a second: see
/// QuantizeKernel and the FP8 ops of op_list.h.
template <int kInputs, typename T, typename Make>
void LaunchQuantize(const Context& context, Tensor& out, Tensor& transposed, Tensor& column_sums,
                    Tensor& amax, const Tensor& first, const Tensor& second, const Tensor& scale,
                    Fp8Format format, Make make) {
  QuantizeProblem<T> problem = {};
  problem.rows = first.size(0);
  problem.columns = first.size(1);
  const std::int64_t tiles_down = (problem.rows + kTileRows - 1) / kTileRows;
  const std::int64_t tiles_across = (problem.columns + kTileColumns - 1) / kTileColumns;
  Tensor partials;
  if (column_sums.defined()) {
    const Dims shape = {tiles_down, problem.columns};
    partials = Tensor::Empty(shape, DataTypeOf<ComputeType<T>>(), context.device);
    problem.partials = partials.data<ComputeType<T>>();
  }
  if (out.defined()) problem.out = out.data<std::uint8_t>();
  if (transposed.defined()) problem.transposed = transposed.data<std::uint8_t>();
  if (amax.defined()) problem.amax = reinterpret_cast<std::int32_t*>(amax.data<float>());
  problem.inputs[0] = first.data<T>();
  problem.inputs[1] = second.defined() ? second.data<T>() : nullptr;
  problem.scale = scale.data<float>();
  const bool wide_rows = VectorWidth(problem.inputs[0], problem.inputs[1]) == kMaxVectorWidth<T> &&
                         VectorWidth(problem.out, problem.columns) >= kLaneColumns;
  const bool wide_columns = problem.transposed == nullptr ||
                            VectorWidth(problem.transposed, problem.rows) == kMaxVectorBytes;
  const Geometry geometry{.grid_x = std::min(tiles_down * tiles_across, kMaxQuantizeBlocks),
                          .block = kQuantizeThreads};
  DispatchFp8(format, [&](auto tag) {
    using F = typename decltype(tag)::type;
    if (wide_rows && wide_columns) {
      Launch(context, geometry, &QuantizeKernel<F, kInputs, true, T, Make>, problem, make);
    } else {
      Launch(context, geometry, &QuantizeKernel<F, kInputs, false, T, Make>, problem, make);
    }
  });
  if (column_sums.defined())
    SumParts(context, DataTypeOf<T>(), {&column_sums}, partials, problem.columns);
}

}  // namespace infini_train::simt
