#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "infini_train/core/tensor.h"

namespace infini_train::cpu {

/// Strides of a matrix in elements. One of them is 1.
struct MatrixLayout {
  std::int64_t row = 0;
  std::int64_t column = 1;

  bool operator==(const MatrixLayout&) const = default;
};

/// Row-major without gaps.
constexpr MatrixLayout RowMajor(std::int64_t columns) {
  return {columns, 1};
}
/// The transpose of a row-major matrix that has `rows` columns in memory.
constexpr MatrixLayout ColumnMajor(std::int64_t rows) {
  return {1, rows};
}
constexpr MatrixLayout Transposed(MatrixLayout layout) {
  return {layout.column, layout.row};
}

/// Everything about a matrix product but the addresses:
/// c [m, n] = a [m, k] @ b [k, n] + bias [n], plus the former c where `accumulate`.
struct GemmProblem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  MatrixLayout a = {};
  MatrixLayout b = {};
  MatrixLayout c = {};
  /// Type of a, b and bias: floating.
  DataType input = DataType::kFloat32;
  /// Type of c: `input` or float32 (float64 only beside float64).
  DataType output = DataType::kFloat32;
  bool accumulate = false;

  bool operator==(const GemmProblem&) const = default;
};

/// Runs a matrix product, on all threads unless called inside a parallel loop. `bias` may be null.
/// c must not overlap the inputs. Sums in float32 (float64 for float64) in an order that depends on
/// the problem and, where oneDNN runs it, on the number of threads.
void RunGemm(const GemmProblem& problem, void* c, const void* a, const void* b,
             const void* bias = nullptr);

/// The problem of the last two dimensions of the operands of an op: `op`'s name is for the Error
/// that is thrown where products of a's type are not written in out's.
GemmProblem DescribeGemm(std::string_view op, const Tensor& out, const Tensor& a, const Tensor& b,
                         bool accumulate);

/// The address of the element that lies `offset` elements into the tensor.
inline std::byte* AddressAt(const Tensor& tensor, std::int64_t offset) {
  return static_cast<std::byte*>(tensor.raw_data()) +
         offset * static_cast<std::int64_t>(SizeOf(tensor.dtype()));
}

}  // namespace infini_train::cpu
