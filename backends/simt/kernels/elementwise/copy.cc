#include <algorithm>
#include <cstdint>

#include "backends/simt/kernels/elementwise/convert.h"
#include "backends/simt/kernels/elementwise/elementwise.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

struct IdentityOp {
  template <typename T>
  SIMT_DEVICE T operator()(T x) const {
    return x;
  }
};

/// Between types that have no kernel of their own. `to` is out's.
template <typename From>
SIMT_KERNEL void ConvertKernel(StridedLoop<2> loop, DataType to) {
  for (std::int64_t item = GlobalThreadIndex(); item < loop.items.numel;
       item += GlobalThreadCount()) {
    std::int64_t offsets[2];
    loop.items.Locate(item, offsets);
    StoreNumber(loop.data[0], to, offsets[0], ToCompute(Load(loop.At<const From>(1, offsets[1]))));
  }
}

/// Matrices of which `x` is contiguous along rows and `out` along columns; one of them for each
/// position of `batch`. Strides are in elements.
struct Transposition {
  StridedIndex<2> batch;
  void* out;
  const void* x;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t out_row_stride;
  std::int64_t x_column_stride;
};

/// The side of the tiles that pass through shared memory, so that reads and writes are both of
/// neighbours.
constexpr int kTile = 32;
constexpr int kTransposeBlock = 256;
/// More blocks than that fill a device only cost their start.
constexpr std::int64_t kMaxTransposeGrid = 4096;
/// Thinner matrices leave most of a tile empty.
constexpr std::int64_t kMinTransposeExtent = 16;

SIMT_HOST_DEVICE inline std::int64_t TilesOf(std::int64_t extent) {
  return (extent + kTile - 1) / kTile;
}

template <typename T>
SIMT_KERNEL void TransposeKernel(Transposition matrices) {
  constexpr int kPitch = kTile + 1;  // Keeps the columns of a tile in different banks.
  constexpr int kStep = kTransposeBlock / kTile;
  SIMT_SHARED(T, tile, kTile * kPitch);
  const int lane = ThreadIndex() % kTile;
  const int band = ThreadIndex() / kTile;
  const std::int64_t row_tiles = TilesOf(matrices.rows);
  const std::int64_t tiles = row_tiles * TilesOf(matrices.columns);
  for (std::int64_t item = BlockIndex(); item < tiles * matrices.batch.numel; item += GridSize()) {
    std::int64_t offsets[2];
    matrices.batch.Locate(item / tiles, offsets);
    T* const out = static_cast<T*>(matrices.out) + offsets[0];
    const T* const x = static_cast<const T*>(matrices.x) + offsets[1];
    const std::int64_t first_row = item % tiles % row_tiles * kTile;
    const std::int64_t first_column = item % tiles / row_tiles * kTile;
    for (int c = band; c < kTile; c += kStep) {
      const std::int64_t row = first_row + lane;
      const std::int64_t column = first_column + c;
      if (row < matrices.rows && column < matrices.columns)
        tile[c * kPitch + lane] = Load(x + column * matrices.x_column_stride + row);
    }
    SyncBlock();
    for (int r = band; r < kTile; r += kStep) {
      const std::int64_t row = first_row + r;
      const std::int64_t column = first_column + lane;
      if (row < matrices.rows && column < matrices.columns) {
        const T value = tile[lane * kPitch + r];
        Store(out + row * matrices.out_row_stride + column, value);
      }
    }
    SyncBlock();
  }
}

/// Copies by tiles where `out` is contiguous along one dimension and `x` along another; otherwise
/// returns false. `dims` are those of both.
bool Transpose(const Context& context, DataType dtype, const Array& out, const Array& x,
               MergedDims dims) {
  const int last = dims.rank - 1;
  int dim = 0;
  while (dim < last && dims.strides[dim][1] != 1)
    ++dim;
  if (dim >= last || dims.inner_stride(0) != 1 || dims.sizes[dim] < kMinTransposeExtent ||
      dims.inner_size() < kMinTransposeExtent)
    return false;
  Transposition matrices = {};
  matrices.out = out.data;
  matrices.x = x.data;
  matrices.rows = dims.sizes[dim];
  matrices.columns = dims.inner_size();
  matrices.out_row_stride = dims.strides[dim][0];
  matrices.x_column_stride = dims.inner_stride(1);
  dims.sizes[dim] = dims.sizes[last] = 1;
  matrices.batch = StridedIndex<2>(dims);
  const std::int64_t tiles =
      matrices.batch.numel * TilesOf(matrices.rows) * TilesOf(matrices.columns);
  DispatchSize(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    Launch(context, Rows(std::min(tiles, kMaxTransposeGrid), kTransposeBlock), &TransposeKernel<T>,
           matrices);
  });
  return true;
}

/// A matrix whose rows are all `x`. Strides are in elements.
struct RepeatedRow {
  void* out;
  const void* x;
  std::int64_t vectors;  ///< of a row
  std::int64_t row_stride;
  std::int64_t rows;
  std::int64_t step;  ///< rows from one to the next that a lane writes
};

/// Fewer rows are not worth lanes that stay in their columns.
constexpr std::int64_t kMinRepeats = 64;
/// About twice as many as are resident, each of which still writes many rows of a large matrix.
constexpr std::int64_t kRepeatLanesPerProcessor = 4096;

template <typename T>
SIMT_KERNEL void RepeatRowKernel(RepeatedRow matrix) {
  constexpr int kWidth = kMaxVectorWidth<T>;
  constexpr int kBatch = 4;
  const std::int64_t distance = matrix.step * matrix.row_stride;
  for (std::int64_t item = GlobalThreadIndex(); item < matrix.step * matrix.vectors;
       item += GlobalThreadCount()) {
    std::int64_t row = item / matrix.vectors;
    const std::int64_t column = (item - row * matrix.vectors) * kWidth;
    const Vec<T, kWidth> value = Load<kWidth>(static_cast<const T*>(matrix.x) + column);
    T* out = static_cast<T*>(matrix.out) + row * matrix.row_stride + column;
    for (; row + (kBatch - 1) * matrix.step < matrix.rows; row += kBatch * matrix.step) {
      SIMT_UNROLL
      for (int k = 0; k < kBatch; ++k)
        Store(out + k * distance, value);
      out += kBatch * distance;
    }
    for (; row < matrix.rows; row += matrix.step, out += distance)
      Store(out, value);
  }
}

/// Copies by lanes that write one vector to many rows where `out` is a matrix of vectors and `x`
/// its every row; otherwise returns false. `dims` are those of both.
bool RepeatRow(const Context& context, DataType dtype, const Array& out, const Array& x,
               const MergedDims& dims) {
  if (dims.rank != 2 || dims.strides[0][1] != 0 || dims.inner_stride(0) != 1 ||
      dims.inner_stride(1) != 1 || dims.sizes[0] < kMinRepeats)
    return false;
  RepeatedRow matrix = {};
  matrix.out = out.data;
  matrix.x = x.data;
  matrix.row_stride = dims.strides[0][0];
  matrix.rows = dims.sizes[0];
  bool is_vectors = false;
  DispatchSize(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    is_vectors = VectorWidth(static_cast<T*>(out.data), static_cast<T*>(x.data), dims.inner_size(),
                             matrix.row_stride) >= kMaxVectorWidth<T>;
    if (!is_vectors) return;
    matrix.vectors = dims.inner_size() / kMaxVectorWidth<T>;
    const std::int64_t lanes = kRepeatLanesPerProcessor * MultiprocessorCount(context);
    matrix.step = std::clamp<std::int64_t>(lanes / matrix.vectors, 1, matrix.rows);
    Launch(context, Linear(matrix.step * matrix.vectors), &RepeatRowKernel<T>, matrix);
  });
  return is_vectors;
}

void Copy(const Context& context, Tensor& out, const Tensor& x) {
  const DataType from = x.dtype();
  const DataType to = out.dtype();
  if (from == to) {
    const Array source = Array::Of(x, out.shape());
    const Array target = Array::Of(out, out.shape());
    const MergedDims dims(out.shape(), {&target.strides, &source.strides});
    if (Transpose(context, to, target, source, dims) ||
        RepeatRow(context, to, target, source, dims)) {
      return;
    }
    DispatchSize(to, [&](auto tag) {
      using T = typename decltype(tag)::type;
      LaunchElementwise<T, T>(context, IdentityOp(), out, x);
    });
    return;
  }
  // The conversions of mixed precision are vectorised, others are not.
  const auto is_half = [](DataType dtype) { return IsFloatingPoint(dtype) && SizeOf(dtype) == 2; };
  if (from == DataType::kFloat32 && is_half(to)) {
    DispatchTypes(Types<Float16, BFloat16>{}, "Copy", to, [&](auto tag) {
      LaunchElementwise<typename decltype(tag)::type, float>(context, IdentityOp(), out, x);
    });
  } else if (to == DataType::kFloat32 && is_half(from)) {
    DispatchTypes(Types<Float16, BFloat16>{}, "Copy", from, [&](auto tag) {
      LaunchElementwise<float, typename decltype(tag)::type>(context, IdentityOp(), out, x);
    });
  } else {
    const Dims& shape = out.shape();
    const StridedLoop<2> loop(shape, {Array::Of(out, shape), Array::Of(x, shape)}, 1);
    DispatchTypes(AllTypes{}, "Copy", from, [&](auto tag) {
      using From = typename decltype(tag)::type;
      Launch(context, Linear(loop.items.numel), &ConvertKernel<From>, loop, to);
    });
  }
}

}  // namespace

SIMT_REGISTER_KERNEL(Copy, &Copy);

}  // namespace infini_train::simt
