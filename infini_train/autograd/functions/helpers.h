#pragma once

#include <string_view>

#include "infini_train/core/dims.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"

/// What the function files share. `raw` functions compute without recording; they are for use
/// inside functions and their backward.
namespace infini_train {

namespace raw {

/// Converted on the same device; the same tensor when it has that type.
Tensor To(Tensor x, DataType dtype);
/// Row-major; the same tensor when it is already.
Tensor Contiguous(Tensor x);
/// A row-major copy.
Tensor Clone(const Tensor& x);
/// A view where the strides allow it, else a copy. One extent may be -1.
Tensor Reshape(const Tensor& x, const Dims& shape);
/// Broadcast view. Throws Error when x does not broadcast to `shape`.
Tensor Expand(const Tensor& x, const Dims& shape);
/// The view of [start, start + length) along dim (not negative).
Tensor Narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length);
/// Sums the dimensions that were broadcast to get from `shape` to grad's shape: the backward of
/// Expand.
Tensor SumToShape(const Tensor& grad, const Dims& shape);
Tensor Zeros(const Dims& shape, DataType dtype, Device device);

}  // namespace raw

namespace detail {

/// Throws Error unless x has a floating type.
void CheckFloating(std::string_view name, const Tensor& x);
/// Throws Error unless x is int64 or int32.
void CheckIndex(std::string_view name, const Tensor& x);

/// Autocast's type for float32 and bfloat16 operands where it is on, else the type they meet in.
/// Throws Error for a type that is not floating.
DataType MatmulDataType(std::string_view name, const Tensor& a, const Tensor& b);

/// Whether the Gemm op may write `out` from operands of type `operand`.
constexpr bool GemmWrites(DataType operand, DataType out) {
  return operand == out || (out == DataType::kFloat32 && operand != DataType::kFloat64);
}

/// The type of row statistics, losses and other sums over x: float64 for float64, else float32.
inline DataType StatDataType(const Tensor& x) {
  return x.dtype() == DataType::kFloat64 ? DataType::kFloat64 : DataType::kFloat32;
}

}  // namespace detail
}  // namespace infini_train
