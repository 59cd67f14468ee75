#include "kernels/gelu_gradient.h"

#include <algorithm>
#include <cstdint>

#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/kernels/norm/part_sums.h"
#include "backends/simt/packed.h"
#include "infini_train/core/dtype.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/gemm_composition.h"

namespace infini_train::simt {
namespace {

/// A block has the columns of kLanes vectors and the rows of a part, kRows at once, of which each
/// lane reads kBatch before it uses the first.
constexpr int kLanes = 64;
constexpr int kRows = 4;
constexpr int kBatch = 2;
constexpr std::int64_t kRowsOfAPart = 256;
constexpr std::int64_t kMaxParts = 1024;

template <typename T>
struct GeluSlopePass {
  T* grad;
  const T* pre;
  ComputeType<T>* partials;  ///< [parts, columns]
  std::int64_t rows, columns, rows_of_a_part;
};

template <typename T>
SIMT_KERNEL void GeluSlopeKernel(GeluSlopePass<T> pass) {
  using C = ComputeType<T>;
  constexpr int kVector = kMaxVectorWidth<T>;
  SIMT_SHARED(C, shared, kLanes * kRows * kVector);
  const int lane = ThreadIndex() % kLanes;
  const int row_lane = ThreadIndex() / kLanes;
  const std::int64_t column = (BlockIndex() * kLanes + lane) * kVector;
  const bool has_columns = column < pass.columns;
  const std::int64_t first = BlockIndexY() * pass.rows_of_a_part;
  const std::int64_t end =
      has_columns ? Min<std::int64_t>(first + pass.rows_of_a_part, pass.rows) : first;
  C sums[kVector] = {};
  // Addresses that move: nvcc splits stores to those that it finds by a product for each row.
  const std::int64_t step = kRows * pass.columns;
  const std::int64_t begin = (first + row_lane) * pass.columns + column;
  T* grad_row = pass.grad + begin;
  const T* pre_row = pass.pre + begin;
  for (std::int64_t row = first + row_lane; row < end; row += kRows * kBatch) {
    Packed<T, kVector> grads[kBatch], pres[kBatch];
    SIMT_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      if (row + i * kRows >= end) continue;
      grads[i] = Packed<T, kVector>::Of(grad_row + i * step);
      pres[i] = Packed<T, kVector>::Of(pre_row + i * step);
    }
    SIMT_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      if (row + i * kRows >= end) continue;
      C grad[kVector], pre[kVector];
      grads[i].Widen(grad);
      pres[i].Widen(pre);
      Vec<T, kVector> results;
      for (int v = 0; v < kVector; ++v) {
        const C result = grad[v] * GeluTanhSlope<T>(pre[v]);
        results[v] = FromCompute<T>(result);
        sums[v] += result;
      }
      Store(grad_row + i * step, results);
    }
    grad_row += kBatch * step;
    pre_row += kBatch * step;
  }
  SIMT_UNROLL
  for (int v = 0; v < kVector; ++v)
    shared[(row_lane * kVector + v) * kLanes + lane] = sums[v];
  SyncBlock();
  if (row_lane != 0 || !has_columns) return;
  for (int v = 0; v < kVector; ++v) {
    C sum = sums[v];
    for (int r = 1; r < kRows; ++r) {
      const C other = shared[(r * kVector + v) * kLanes + lane];
      sum += other;
    }
    Store(pass.partials + BlockIndexY() * pass.columns + column + v, sum);
  }
}

}  // namespace

void MultiplyByGeluSlope(const Context& context, Tensor& grad, const Tensor& pre,
                         Tensor& column_sums) {
  const std::int64_t rows = grad.size(0), columns = grad.size(1);
  const std::int64_t vector = kMaxVectorBytes / static_cast<std::int64_t>(SizeOf(grad.dtype()));
  const auto is_aligned = [](const Tensor& x) {
    return reinterpret_cast<std::uintptr_t>(x.raw_data()) % kMaxVectorBytes == 0;
  };
  const bool is_vector = columns % vector == 0 && is_aligned(grad) && is_aligned(pre);
  const bool sums_fit = column_sums.defined() && column_sums.IsContiguous();
  if (!is_vector || !sums_fit || rows == 0) {
    Call<op::GeluBackward>(grad, grad, pre, true);
    ColumnSums(column_sums, grad);
    return;
  }
  const std::int64_t rows_of_a_part = std::max(kRowsOfAPart, (rows + kMaxParts - 1) / kMaxParts);
  const std::int64_t parts = (rows + rows_of_a_part - 1) / rows_of_a_part;
  const std::int64_t strip = kLanes * vector;
  DispatchFloating("GemmGeluBackward", grad.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Tensor partials =
        Tensor::Empty({parts, columns}, DataTypeOf<ComputeType<T>>(), context.device);
    Launch(
        context,
        Geometry{.grid_x = (columns + strip - 1) / strip, .grid_y = parts, .block = kLanes * kRows},
        GeluSlopeKernel<T>,
        GeluSlopePass<T>{grad.data<T>(), pre.data<T>(), partials.data<ComputeType<T>>(), rows,
                         columns, rows_of_a_part});
    SumParts(context, grad.dtype(), {&column_sums}, partials, columns);
  });
}

}  // namespace infini_train::simt
