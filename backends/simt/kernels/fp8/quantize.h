#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/fp8/code_tiles.h"
#include "backends/simt/kernels/norm/part_sums.h"
#include "backends/simt/packed.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/fp8.h"

/// The pass that quantises a matrix, whatever its numbers are made of.
namespace infini_train::simt {

template <typename T>
struct QuantizeProblem {
  std::uint8_t* out;         // [rows, columns], or null
  std::uint8_t* transposed;  // [columns, rows], or null
  ComputeType<T>* partials;  // [parts, columns], sums of the columns of parts, or null
  std::int32_t* amax;        // the bits of a float, or null
  const T* inputs[2];        // [rows, columns]; the second where Make takes two
  const float* scale;
  std::int64_t rows, columns;
  std::int64_t parts, part_rows;
};

/// The numbers of a piece of an input, zeros outside of the matrix.
template <bool kVector, typename T>
struct PieceNumbers {
  static constexpr int kWidth = std::min(kMaxVectorWidth<T>, kLaneColumns);
  Packed<T, kWidth> vectors[kLaneRows][kLaneColumns / kWidth];

  SIMT_DEVICE void Load(const T* matrix, std::int64_t stride, const Piece& piece) {
    const T* from = matrix + piece.row * stride + piece.column;
    SIMT_UNROLL
    for (int r = 0; r < kLaneRows; ++r) {
      SIMT_UNROLL
      for (int v = 0; v < kLaneColumns / kWidth; ++v) {
        vectors[r][v] = {};
        if constexpr (kVector) {
          if (r < piece.rows && piece.columns > 0)
            vectors[r][v] = Packed<T, kWidth>::Of(from + v * kWidth);
        } else {
          Vec<T, kWidth> values = {};
          SIMT_UNROLL
          for (int x = 0; x < kWidth; ++x) {
            if (r < piece.rows && v * kWidth + x < piece.columns)
              values[x] = simt::Load(from + v * kWidth + x);
          }
          vectors[r][v] = Packed<T, kWidth>(values);
        }
      }
      from += stride;
    }
  }

  SIMT_DEVICE void Row(ComputeType<T> (&numbers)[kLaneColumns], int r) const {
    SIMT_UNROLL
    for (int v = 0; v < kLaneColumns / kWidth; ++v) {
      ComputeType<T> part[kWidth];
      vectors[r][v].Widen(part);
      SIMT_UNROLL
      for (int x = 0; x < kWidth; ++x)
        numbers[v * kWidth + x] = part[x];
    }
  }
};

/// Make: `C make(C first, C second)`, the number to quantise; kInputs of its operands are read.
/// kVector: rows and columns allow wide accesses.
template <typename F, int kInputs, bool kVector, bool kSums, int kLanes, typename T, typename Make>
SIMT_KERNEL SIMT_RESIDENT(kLanes, kLanes == 512 || kInputs == 2 ? 2 : 3) void QuantizeKernel(
    QuantizeProblem<T> problem, Make make) {
  using C = ComputeType<T>;
  constexpr int kGroups = kLanes / kGroupWidth;
  constexpr int kRows = kTileRows<kLanes>;
  using Places = ColumnPlaces<kRows / 4>;
  constexpr int kTileWords = kTileColumns * kRows / 4;
  // Tiles in turn use one half and the other one, so that one barrier is enough.
  SIMT_SHARED(std::uint32_t, words, 2 * kTileWords);
  SIMT_SHARED(C, group_sums, kSums ? kGroups * kTileColumns : 1);
  int half = 0;
  const int across = ThreadIndex() % kLanesAcross;
  const int down = ThreadIndex() / kLanesAcross;
  const float scale = Load(problem.scale + 1);
  float largest = 0;
  const std::int64_t step = GridSize() * kTileColumns;
  for (std::int64_t part = BlockIndexY(); part < problem.parts; part += GridSizeY()) {
    const std::int64_t first_row = part * problem.part_rows;
    const std::int64_t end_row = Min(first_row + problem.part_rows, problem.rows);
    for (std::int64_t tile_column = BlockIndex() * kTileColumns; tile_column < problem.columns;
         tile_column += step) {
      const std::int64_t column = tile_column + across * kLaneColumns;
      C sums[kLaneColumns] = {};
      PieceNumbers<kVector, T> inputs[kInputs];
      Piece piece = Piece::At(first_row + down * kLaneRows, column, problem.rows, problem.columns);
      SIMT_UNROLL
      for (int k = 0; k < kInputs; ++k)
        inputs[k].Load(problem.inputs[k], problem.columns, piece);
      for (std::int64_t tile_row = first_row; tile_row < end_row; tile_row += kRows) {
        std::uint32_t packed[kLaneColumns / 4][kLaneRows];
        SIMT_UNROLL
        for (int r = 0; r < kLaneRows; ++r) {
          C first[kLaneColumns], second[kLaneColumns];
          inputs[0].Row(first, r);
          inputs[kInputs - 1].Row(second, r);
          float scaled[kLaneColumns];
          SIMT_UNROLL
          for (int c = 0; c < kLaneColumns; ++c) {
            const C number = make(first[c], second[c]);
            if constexpr (kSums) sums[c] += number;
            largest = Max(largest, Abs(static_cast<float>(number)));
            scaled[c] = static_cast<float>(number) * scale;
          }
          SIMT_UNROLL
          for (int w = 0; w < kLaneColumns / 4; ++w) {
            packed[w][r] = PackCodes<F>(scaled[4 * w], scaled[4 * w + 1], scaled[4 * w + 2],
                                        scaled[4 * w + 3]);
          }
        }
        const Piece done = piece;
        piece = Piece::At(done.row + kRows, column, end_row, problem.columns);
        SIMT_UNROLL
        for (int k = 0; k < kInputs; ++k)
          inputs[k].Load(problem.inputs[k], problem.columns, piece);

        if (problem.out != nullptr) {
          std::uint8_t* to = problem.out + done.row * problem.columns + done.column;
          SIMT_UNROLL
          for (int r = 0; r < kLaneRows; ++r, to += problem.columns) {
            if (r >= done.rows || done.columns <= 0) continue;
            const auto codes = std::bit_cast<Vec<std::uint8_t, kLaneColumns>>(
                Vec<std::uint32_t, 2>{packed[0][r], packed[1][r]});
            if constexpr (kVector) {
              Store(to, codes);
            } else {
              for (int c = 0; c < done.columns; ++c)
                Store(to + c, codes[c]);
            }
          }
        }
        if (problem.transposed == nullptr) continue;
        SIMT_UNROLL
        for (int w = 0; w < kLaneColumns / 4; ++w) {
          TransposeBytes(packed[w]);
          SIMT_UNROLL
          for (int c = 0; c < 4; ++c) {
            words[half * kTileWords + Places::OfWord(across, 4 * w + c, down)] = packed[w][c];
          }
        }
        SyncBlock();
        WriteColumns<kVector, kLanes>({problem.transposed, problem.rows, problem.columns},
                                      words.Sub(half * kTileWords, kTileWords), tile_row,
                                      tile_column);
        half ^= 1;
      }
      if constexpr (kSums) {
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
        SyncBlock();
        if (problem.partials != nullptr && ThreadIndex() < kTileColumns &&
            tile_column + ThreadIndex() < problem.columns) {
          C sum = 0;
          for (int group = 0; group < kGroups; ++group) {
            const C next = group_sums[group * kTileColumns + ThreadIndex()];
            sum += next;
          }
          Store(problem.partials + part * problem.columns + tile_column + ThreadIndex(), sum);
        }
        SyncBlock();
      }
    }
  }
  largest = ReduceBlock(largest, MaxOp(), 0.0f);
  // Numbers without their sign order like their bits, with NaN above all.
  if (ThreadIndex() == 0 && problem.amax != nullptr)
    AtomicMax(problem.amax, std::bit_cast<std::int32_t>(largest) & 0x7FFFFFFF);
}

/// Quantises make(first[i], second[i]), or make(first[i], first[i]) without a second: see
/// QuantizeKernel and the FP8 ops of op_list.h. kMaySum: column_sums may be defined.
template <int kInputs, bool kMaySum, typename T, typename Make>
void LaunchQuantize(const Context& context, Tensor& out, Tensor& transposed, Tensor& column_sums,
                    Tensor& amax, const Tensor& first, const Tensor& second, const Tensor& scale,
                    Fp8Format format, Make make) {
  QuantizeProblem<T> problem = {};
  problem.rows = first.size(0);
  problem.columns = first.size(1);
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

  const auto launch = [&]<int kLanes>(std::integral_constant<int, kLanes>) {
    const CodeParts parts(problem.rows, problem.columns, kTileRows<kLanes>);
    problem.part_rows = parts.part_rows;
    problem.parts = parts.parts;
    Tensor partials;
    if (column_sums.defined()) {
      const Dims shape = {problem.parts, problem.columns};
      partials = Tensor::Empty(shape, DataTypeOf<ComputeType<T>>(), context.device);
      problem.partials = partials.data<ComputeType<T>>();
    }
    const Geometry geometry = parts.GeometryOf(kLanes);
    DispatchFp8(format, [&](auto tag) {
      using F = typename decltype(tag)::type;
      const auto run = [&](auto vector, auto sums) {
        Launch(context, geometry,
               &QuantizeKernel<F, kInputs, vector.value, sums.value, kLanes, T, Make>, problem,
               make);
      };
      // Narrow accesses are rare, and a kernel with sums can do without.
      if (!(wide_rows && wide_columns)) {
        run(std::false_type{}, std::bool_constant<kMaySum>{});
      } else if (!column_sums.defined()) {
        run(std::true_type{}, std::false_type{});
      } else {
        if constexpr (kMaySum) run(std::true_type{}, std::true_type{});
      }
    });
    if (column_sums.defined())
      SumParts(context, DataTypeOf<T>(), {&column_sums}, partials, problem.columns);
  };
  // Blocks of 512 lanes write longer pieces of transposed rows; two inputs fill their registers,
  // and float64 their shared memory.
  constexpr bool kLong = sizeof(T) == 4 || (kInputs == 1 && sizeof(T) != 8);
  launch(std::integral_constant < int, kLong ? 512 : 256 > {});
}

}  // namespace infini_train::simt
