#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "infini_train/core/tensor.h"

/// The op Gemm in the words of a library that multiplies column-major matrices.
namespace infini_train::simt {

/// A matrix whose columns are `leading` elements apart. `transposed`: a product takes it the other
/// way round.
struct GemmMatrix {
  void* data = nullptr;
  DataType dtype = DataType::kFloat32;
  std::int64_t rows = 0, columns = 0, leading = 0, batch_stride = 0;
  bool transposed = false;
};

/// out = first second, `batch` times.
struct GemmLayout {
  GemmMatrix first, second, out;
  std::int64_t batch = 1;
};

namespace detail {

/// The last two dims of a tensor, of `rows` rows, where one of their strides is 1.
inline std::optional<GemmMatrix> FindMatrix(const Tensor& tensor, std::int64_t rows,
                                            std::int64_t batch_stride) {
  const std::int64_t columns = tensor.size(-1);
  const std::int64_t row_stride = tensor.strides()[tensor.rank() - 2];
  const std::int64_t column_stride = tensor.strides()[tensor.rank() - 1];
  void* const data = tensor.raw_data();
  if ((column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1)) {
    return GemmMatrix{
        data, tensor.dtype(), columns, rows, std::max(row_stride, columns), batch_stride, true};
  }
  if ((row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1)) {
    return GemmMatrix{data,         tensor.dtype(), rows, columns, std::max(column_stride, rows),
                      batch_stride, false};
  }
  return std::nullopt;
}

}  // namespace detail

/// The layout of the op Gemm's operands; none where a library does not take it, or there is nothing
/// to multiply. For a row-major out it is the transposed product, out^T = b^T a^T: `first` is b
/// then.
inline std::optional<GemmLayout> DescribeGemmLayout(const Tensor& out, const Tensor& a,
                                                    const Tensor& b) {
  /// The most products that one call takes.
  constexpr std::int64_t kMaxBatch = 65535;
  using Strides = std::array<std::int64_t, 3>;
  const int rank = out.rank();
  const auto strides_of = [&](int i) {
    return Strides{a.strides()[i], b.strides()[i], out.strides()[i]};
  };
  const Strides row = strides_of(rank - 2);
  std::int64_t m = out.size(-2);
  GemmLayout layout;
  Strides batch = {};
  for (int i = rank - 3; i >= 0; --i) {
    const Strides step = strides_of(i);
    const std::int64_t extent = out.shape()[i], count = layout.batch;
    if (extent == 1) continue;
    if (count == 1 && step == Strides{m * row[0], 0, m * row[2]}) {
      m *= extent;  // Products with one b that follow each other are one product of more rows.
      continue;
    }
    if (count == 1) batch = step;
    if (step != Strides{count * batch[0], count * batch[1], count * batch[2]} && count > 1)
      return std::nullopt;
    layout.batch *= extent;
  }
  auto left = detail::FindMatrix(a, m, batch[0]);
  auto right = detail::FindMatrix(b, b.size(-2), batch[1]);
  const auto result = detail::FindMatrix(out, m, batch[2]);
  if (out.numel() == 0 || a.size(-1) == 0 || layout.batch > kMaxBatch || !left || !right ||
      !result) {
    return std::nullopt;
  }
  if (result->transposed) {
    // Rows of out are columns of its transpose, b^T a^T.
    std::swap(left, right);
    left->transposed = !left->transposed;
    right->transposed = !right->transposed;
  }
  layout.first = *left;
  layout.second = *right;
  layout.out = *result;
  return layout;
}

}  // namespace infini_train::simt
