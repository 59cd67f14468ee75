#pragma once

#include <string_view>

#include "infini_train/core/dims.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/generator.h"
#include "infini_train/core/scalar.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"

/// What the function files share. `raw` functions compute without recording; they are for use
/// inside functions and their backward.
namespace infini_train {

namespace raw {

/// Converted on the same device; the same tensor when it has that type.
Tensor To(Tensor x, DataType dtype);
/// A row-major copy on another device, in order of both devices' current streams; the same tensor
/// when it is there already.
Tensor To(const Tensor& x, Device device);
/// Row-major; the same tensor when it is already.
Tensor Contiguous(Tensor x);
/// A row-major copy.
Tensor Clone(const Tensor& x);
/// A view where the strides allow it, else a copy. One extent may be -1.
Tensor Reshape(const Tensor& x, const Dims& shape);
/// x [rows.., n] as [N, n]: a view where the strides allow it, else a copy.
Tensor AsMatrix(const Tensor& x);
/// Broadcast view. Throws Error when x does not broadcast to `shape`.
Tensor Expand(const Tensor& x, const Dims& shape);
/// The view with two dimensions (not negative) exchanged.
Tensor Transpose(const Tensor& x, int dim0, int dim1);
/// The view of [start, start + length) along dim (not negative).
Tensor Narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length);
/// Sums the dimensions that were broadcast to get from `shape` to grad's shape: the backward of
/// Expand.
Tensor SumToShape(const Tensor& grad, const Dims& shape);
Tensor Zeros(const Dims& shape, DataType dtype, Device device);
/// In a layout that the Gemm op takes: one of the last two strides is 1, the other spans the
/// extent.
Tensor GemmOperand(const Tensor& x);

/// Whether nobody else can see the tensor's memory and it is all used, so that it may be written or
/// kept.
bool OwnsItsMemory(const Tensor& tensor);
/// Memory for the result of elementwise work on `grad`: grad's own where nobody else can see it,
/// else fresh.
Tensor BufferFor(const Tensor& grad);

}  // namespace raw

namespace detail {

/// Call<Op> as a plain function, for tables.
template <typename Op>
inline constexpr auto kCall = &Caller<Op, typename Op::Fn>::Call;

/// Shape and type of an operand, to which its gradient returns after broadcasting and promotion.
struct GradTarget {
  explicit GradTarget(const Tensor& x) : shape(x.shape()), dtype(x.dtype()) {}
  Tensor From(const Tensor& grad) const { return raw::To(raw::SumToShape(grad, shape), dtype); }

  Dims shape;
  DataType dtype;
};

/// x converted and broadcast: the other way.
inline Tensor AsOperand(const Tensor& x, const Dims& shape, DataType dtype) {
  return raw::Expand(raw::To(x, dtype), shape);
}

/// The type in which a tensor meets a number: an integer tensor stays one with an integer (bool
/// becomes int64), else it becomes float32.
inline DataType TypeWithNumber(DataType dtype, Scalar number) {
  if (IsFloatingPoint(dtype)) return dtype;
  if (!number.is_integer()) return DataType::kFloat32;
  return dtype == DataType::kBool ? DataType::kInt64 : dtype;
}

/// The state for a random op on `device`, from the generator or, where it is null, the default one.
/// Throws Error where a graph captures the random numbers of another device.
Generator::State NextRandomState(Generator* generator, Device device);

/// Throws Error unless x has a floating type.
void CheckFloating(std::string_view name, const Tensor& x);
/// Throws Error unless x is int64 or int32.
void CheckIndex(std::string_view name, const Tensor& x);

/// Autocast's type for float32 and bfloat16 operands where it is on, else the type they meet in.
/// Throws Error for a type that is not floating.
DataType MatmulDataType(std::string_view name, const Tensor& a, const Tensor& b);

/// Throws Error unless weight is [out, in_features] and bias undefined or [out].
void CheckLinear(std::string_view name, std::int64_t in_features, const Tensor& weight,
                 const Tensor& bias);
/// A norm's parameter as its ops take it beside data of `dtype`: contiguous, of that type or
/// float32. An undefined one stays so.
Tensor NormParameter(const Tensor& parameter, DataType dtype);
/// `rows` [N, features] in the leading shape of x.
Tensor InShapeOf(const Tensor& x, const Tensor& rows);

/// Whether the Gemm op may write `out` from operands of type `operand`.
constexpr bool GemmWrites(DataType operand, DataType out) {
  return operand == out || (out == DataType::kFloat32 && operand != DataType::kFloat64);
}
/// A parameter in the type of a product: the copy of the scope's ParameterCasts, or one of its own.
Tensor ProductParameter(const Tensor& parameter, DataType dtype);

/// The type in which a Gemm of `operand` writes what is `wanted`: its own where it can.
constexpr DataType GemmResultType(DataType operand, DataType wanted) {
  return GemmWrites(operand, wanted) ? wanted : operand;
}

/// The type of row statistics, losses and other sums over x: float64 for float64, else float32.
inline DataType StatDataType(const Tensor& x) {
  return x.dtype() == DataType::kFloat64 ? DataType::kFloat64 : DataType::kFloat32;
}

}  // namespace detail
}  // namespace infini_train
