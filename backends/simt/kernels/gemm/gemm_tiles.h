#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "backends/simt/dialect.h"
#include "backends/simt/tile.h"
#include "infini_train/core/tensor.h"

/// Matrix products by tiles, with an epilogue: what is done to sums before they are written. It has
///
///   matrix            a second matrix of the result's type, shape and strides, or null
///   Apply<kN>(v, at)  changes the kN sums v, of elements that begin `at` elements into the result
///                     and into `matrix`; for kN > 1 they are neighbours there, and aligned
namespace infini_train::simt {
namespace gemm {

// A block of 8 by 8 lanes computes a tile of the output, a lane kTileM / 8 by 8 elements of it: few
// lanes with much work each, so that a step of the depth needs few reads of shared memory and one
// barrier.
inline constexpr int kThreads = 64;
inline constexpr int kLanes = 8;
inline constexpr int kTileN = 64;
inline constexpr int kDepth = 16;
inline constexpr int kWideTileM = 64;
// For products of few rows.
inline constexpr int kNarrowTileM = 16;

// A matrix operand: strides along the output's dimension and along the one that is summed.
struct Operand {
  std::int64_t extent_stride = 0;
  std::int64_t depth_stride = 0;
  bool along_depth = false;
  bool vector = false;
};

struct BatchDim {
  std::int64_t extent, a, b, out;
};

// out [m, n] = a [m, k] b [k, n] + bias, for each of `batch` products.
template <typename S, typename O>
struct Problem {
  O* out;
  const S* a;
  const S* b;
  const S* bias;  // or null
  std::int64_t m, n, k;
  Operand a_layout, b_layout;
  std::int64_t out_row, out_column;
  std::int64_t bias_row, bias_column;
  bool out_vector;
  bool accumulate;
  std::int64_t batch;
  int batch_rank;
  BatchDim dims[kMaxRank - 2];
};

template <typename O>
struct NoEpilogue {
  O* matrix = nullptr;

  template <int kN, typename C>
  SIMT_DEVICE void Apply(C*, std::int64_t) const {}
};

// One of the products that a launch computes: where its operands begin, and its extents.
template <typename S, typename O>
struct Product {
  O* out;
  const S* a;
  const S* b;
  std::int64_t m, k;
};

template <typename S, typename O, typename Epilogue>
SIMT_DEVICE void WriteRow(const Problem<S, O>& problem, const Epilogue& epilogue, O* out,
                          std::int64_t row, std::int64_t column, const ComputeType<S>* sums) {
  using C = ComputeType<S>;
  constexpr int kVector = kMaxVectorWidth<C>;
  O* to = out + row * problem.out_row + column * problem.out_column;
  C values[kVector];
  SIMT_UNROLL
  for (int x = 0; x < kVector; ++x) {
    values[x] = sums[x];
    if (problem.bias != nullptr && column + x < problem.n) {
      values[x] += ToCompute(
          Load(problem.bias + row * problem.bias_row + (column + x) * problem.bias_column));
    }
  }
  if (problem.out_vector && column + kVector <= problem.n) {
    Vec<O, kVector> result;
    if (problem.accumulate) result = Load<kVector>(static_cast<const O*>(to));
    SIMT_UNROLL
    for (int x = 0; x < kVector; ++x) {
      if (problem.accumulate) values[x] += ToCompute(result[x]);
    }
    epilogue.template Apply<kVector>(values, to - problem.out);
    SIMT_UNROLL
    for (int x = 0; x < kVector; ++x)
      result[x] = FromCompute<O>(values[x]);
    Store(to, result);
    return;
  }
  SIMT_UNROLL
  for (int x = 0; x < kVector && column + x < problem.n; ++x) {
    O* element = to + x * problem.out_column;
    if (problem.accumulate) values[x] += ToCompute(Load(static_cast<const O*>(element)));
    epilogue.template Apply<1>(values + x, element - problem.out);
    Store(element, FromCompute<O>(values[x]));
  }
}

// Tiles in shared memory: [depth][extent] with gaps, in two buffers each.
template <typename C, int kTileM>
struct Buffers {
  static constexpr int kStrideA = kTileM + kMaxVectorWidth<C>;
  static constexpr int kStrideB = kTileN + kMaxVectorWidth<C>;
  static constexpr int kTileA = kDepth * kStrideA;
  static constexpr int kTileB = kDepth * kStrideB;

  Shared<C> a, b;
};

// Computes and writes the tile of a product at row m0, column n0. All lanes of the block call it;
// they are done with the buffers when it returns.
template <int kTileM, typename S, typename O, typename Epilogue>
SIMT_DEVICE void ComputeTile(const Problem<S, O>& problem, const Epilogue& epilogue,
                             const Product<S, O>& product, std::int64_t m0, std::int64_t n0,
                             const Buffers<ComputeType<S>, kTileM>& buffers,
                             Place place = Place::current()) {
  using C = ComputeType<S>;
  using Tiles = Buffers<C, kTileM>;
  constexpr int kVector = kMaxVectorWidth<C>;
  constexpr int kRows = kTileM / kLanes;
  constexpr int kColumns = kTileN / kLanes;
  // A lane's rows (and columns) come in vectors that are a lane's width times the lanes apart.
  constexpr int kRowVector = std::min(kRows, kVector);
  const int row_at = ThreadIndex() / kLanes * kRowVector;
  const int column_at = ThreadIndex() % kLanes * kVector;
  const auto& a_layout = problem.a_layout;
  const auto& b_layout = problem.b_layout;
  const S* a = product.a + m0 * a_layout.extent_stride;
  const S* b = product.b + n0 * b_layout.extent_stride;

  TileLoader<S, kThreads, kTileM, kDepth, Tiles::kStrideA> a_loader;
  TileLoader<S, kThreads, kTileN, kDepth, Tiles::kStrideB> b_loader;
  C sums[kRows][kColumns] = {};
  // Step -1 only loads. The tiles alternate between two buffers: while one is multiplied the next
  // is written.
  for (std::int64_t step = -1; step * kDepth < product.k; ++step) {
    const std::int64_t next = (step + 1) * kDepth;
    const int buffer = static_cast<int>(step & 1);
    if (next < product.k) {
      a_loader.Fetch(a + next * a_layout.depth_stride, a_layout.extent_stride,
                     a_layout.depth_stride, a_layout.along_depth, a_layout.vector, product.m - m0,
                     product.k - next);
      b_loader.Fetch(b + next * b_layout.depth_stride, b_layout.extent_stride,
                     b_layout.depth_stride, b_layout.along_depth, b_layout.vector, problem.n - n0,
                     product.k - next);
    }
    if (step >= 0) {
      MultiplyTiles<kDepth, kLanes * kRowVector, kLanes * kVector, Tiles::kStrideA,
                    Tiles::kStrideB>(sums, buffers.a, buffer * Tiles::kTileA + row_at, buffers.b,
                                     buffer * Tiles::kTileB + column_at);
    }
    if (next < product.k) {
      a_loader.Put(buffers.a.Sub((1 - buffer) * Tiles::kTileA, Tiles::kTileA),
                   a_layout.along_depth);
      b_loader.Put(buffers.b.Sub((1 - buffer) * Tiles::kTileB, Tiles::kTileB),
                   b_layout.along_depth);
    }
    SyncBlock(place);
  }

  SIMT_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const std::int64_t row = m0 + i / kRowVector * (kLanes * kRowVector) + row_at + i % kRowVector;
    if (row >= product.m) continue;
    SIMT_UNROLL
    for (int j = 0; j < kColumns; j += kVector) {
      const std::int64_t column = n0 + j * kLanes + column_at;
      if (column < problem.n) WriteRow(problem, epilogue, product.out, row, column, &sums[i][j]);
    }
  }
}

template <typename S, typename O, int kTileM, typename Epilogue>
SIMT_KERNEL void GemmKernel(Problem<S, O> problem, Epilogue epilogue) {
  using Tiles = Buffers<ComputeType<S>, kTileM>;
  SIMT_SHARED(ComputeType<S>, a_tiles, 2 * Tiles::kTileA);
  SIMT_SHARED(ComputeType<S>, b_tiles, 2 * Tiles::kTileB);
  const std::int64_t tiles_m = (problem.m + kTileM - 1) / kTileM;
  const std::int64_t tiles_n = (problem.n + kTileN - 1) / kTileN;
  const std::int64_t count = tiles_m * tiles_n * problem.batch;
  for (std::int64_t tile = BlockIndex(); tile < count; tile += GridSize()) {
    Product<S, O> product{problem.out, problem.a, problem.b, problem.m, problem.k};
    std::int64_t index = tile / tiles_m / tiles_n;
    for (int i = problem.batch_rank - 1; i >= 0; --i) {
      const BatchDim& dim = problem.dims[i];
      const std::int64_t position = index % dim.extent;
      index /= dim.extent;
      product.a += position * dim.a;
      product.b += position * dim.b;
      product.out += position * dim.out;
    }
    ComputeTile(problem, epilogue, product, tile % tiles_m * kTileM,
                tile / tiles_m % tiles_n * kTileN, Tiles{a_tiles, b_tiles});
  }
}

template <typename S, typename O>
Problem<S, O> Describe(Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
                       bool accumulate) {
  const int rank = out.rank();
  Problem<S, O> problem{};
  problem.out = out.data<O>();
  problem.a = a.data<S>();
  problem.b = b.data<S>();
  problem.bias = bias.defined() ? bias.data<S>() : nullptr;
  problem.m = out.size(-2);
  problem.n = out.size(-1);
  problem.k = a.size(-1);
  problem.a_layout = {a.strides()[rank - 2], a.strides()[rank - 1]};
  problem.b_layout = {b.strides()[rank - 1], b.strides()[rank - 2]};
  problem.out_row = out.strides()[rank - 2];
  problem.out_column = out.strides()[rank - 1];
  problem.bias_column = bias.defined() ? bias.strides()[0] : 0;
  problem.accumulate = accumulate;
  problem.batch = 1;
  for (int i = 0; i < rank - 2; ++i) {
    const std::int64_t extent = out.shape()[i];
    problem.batch *= extent;
    if (extent != 1) {
      problem.dims[problem.batch_rank++] = {extent, a.strides()[i], b.strides()[i],
                                            out.strides()[i]};
    }
  }
  // Products with one b that follow each other in a and out are one product of more rows.
  while (problem.batch > 0 && problem.batch_rank > 0) {
    const BatchDim& dim = problem.dims[problem.batch_rank - 1];
    if (dim.b != 0 || dim.a != problem.m * problem.a_layout.extent_stride ||
        dim.out != problem.m * problem.out_row) {
      break;
    }
    problem.m *= dim.extent;
    problem.batch /= dim.extent;
    --problem.batch_rank;
  }
  return problem;
}

// Exchanges rows and columns: out^T = b^T a^T.
template <typename S, typename O>
void Transpose(Problem<S, O>& problem) {
  std::swap(problem.a, problem.b);
  std::swap(problem.m, problem.n);
  std::swap(problem.a_layout, problem.b_layout);
  std::swap(problem.out_row, problem.out_column);
  std::swap(problem.bias_row, problem.bias_column);
  for (BatchDim& dim : problem.dims)
    std::swap(dim.a, dim.b);
}

template <typename S, typename O, typename Epilogue>
void ChooseAccess(Problem<S, O>& problem, const Epilogue& epilogue) {
  constexpr int kVector = kMaxVectorWidth<ComputeType<S>>;
  bool aligned_a = true, aligned_b = true, aligned_out = true;
  for (int i = 0; i < problem.batch_rank; ++i) {
    aligned_a = aligned_a && problem.dims[i].a % kVector == 0;
    aligned_b = aligned_b && problem.dims[i].b % kVector == 0;
    aligned_out = aligned_out && problem.dims[i].out % kVector == 0;
  }
  const auto choose = [](Operand& operand, const S* data, bool aligned) {
    operand.along_depth = operand.depth_stride == 1;
    const std::int64_t unit = operand.along_depth ? operand.depth_stride : operand.extent_stride;
    const std::int64_t other = operand.along_depth ? operand.extent_stride : operand.depth_stride;
    operand.vector = aligned && unit == 1 && VectorWidth(data, other) >= kVector;
  };
  choose(problem.a_layout, problem.a, aligned_a);
  choose(problem.b_layout, problem.b, aligned_b);
  problem.out_vector = aligned_out && problem.out_column == 1 &&
                       VectorWidth(problem.out, epilogue.matrix, problem.out_row) >= kVector;
}

template <typename S, typename O, int kTileM, typename Epilogue>
void LaunchTiles(const Context& context, const Problem<S, O>& problem, const Epilogue& epilogue) {
  const std::int64_t tiles =
      (problem.m + kTileM - 1) / kTileM * ((problem.n + kTileN - 1) / kTileN);
  Launch(context, Geometry{.grid_x = std::min(tiles * problem.batch, kMaxGridX), .block = kThreads},
         GemmKernel<S, O, kTileM, Epilogue>, problem, epilogue);
}

/// A Gemm with an epilogue.
template <typename S, typename O, typename Epilogue>
void Run(const Context& context, Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
         bool accumulate, const Epilogue& epilogue) {
  Problem<S, O> problem = Describe<S, O>(out, a, b, bias, accumulate);
  if (problem.m == 0 || problem.n == 0 || problem.batch == 0) return;
  const bool few_columns = problem.n <= kNarrowTileM && problem.m > kNarrowTileM;
  const bool few_rows = problem.m <= kNarrowTileM;
  if (few_columns || (!few_rows && problem.out_column != 1)) Transpose(problem);
  ChooseAccess(problem, epilogue);
  if (problem.m <= kNarrowTileM) {
    LaunchTiles<S, O, kNarrowTileM>(context, problem, epilogue);
  } else {
    LaunchTiles<S, O, kWideTileM>(context, problem, epilogue);
  }
}

}  // namespace gemm
}  // namespace infini_train::simt
