#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/node.h"
#include "infini_train/core/error.h"

namespace infini_train {
namespace {

using autograd::BackwardContext;
using autograd::Record;
using autograd::RecordKind;
using autograd::SavedTensor;
using autograd::ShouldRecord;
using detail::GradTarget;

/// Throws Error when x cannot be written. `other` is the tensor that it gets values from, if any.
void CheckTarget(std::string_view name, const Tensor& x, const Tensor& other = {}) {
  autograd::CheckInPlace(name, x);
  for (int i = 0; i < x.rank(); ++i) {
    if (x.strides()[i] == 0 && x.shape()[i] > 1) {
      throw Error(fmt::format(
          "{}: several elements of an expanded tensor of shape {} share memory; clone it first",
          name, x.shape().ToString()));
    }
  }
  if (!x.requires_grad() && x.storage().use_count() > 1 && ShouldRecord({&other})) {
    throw Error(fmt::format(
        "{}: other tensors share the memory of this one of shape {} and would not get the history "
        "of what is written; clone it first",
        name, x.shape().ToString()));
  }
}

/// Throws Error when x's type cannot hold the result with values of type `other`.
void CheckResultType(std::string_view name, const Tensor& x, DataType other) {
  const bool fits =
      IsFloatingPoint(x.dtype()) || (x.dtype() != DataType::kBool && !IsFloatingPoint(other));
  if (!fits) {
    throw Error(fmt::format("{}: a result of {} with {} does not fit {}", name, ToString(x.dtype()),
                            ToString(other), ToString(x.dtype())));
  }
}

DataType TypeOf(Scalar number) {
  return number.is_integer() ? DataType::kBool : DataType::kFloat32;
}

/// `other` as an operand of x; copied where it overlaps x's memory in another order.
Tensor OperandFor(const Tensor& x, const Tensor& other) {
  const Tensor operand = detail::AsOperand(other, x.shape(), x.dtype());
  const bool same = operand.strides() == x.strides() && operand.offset() == x.offset();
  return operand.SharesStorageWith(x) && !same ? raw::Clone(operand) : operand;
}

}  // namespace

void FillInPlace(const Tensor& x, Scalar value) {
  CheckTarget("FillInPlace", x);
  Tensor target = x;
  Call<op::Fill>(target, value);
  if (ShouldRecord({&x})) {
    // Nothing flows to the values that were overwritten.
    Record(
        "FillInPlace", {&x}, {&x}, [](BackwardContext&) {}, RecordKind::kInPlace);
  }
}

void CopyInPlace(const Tensor& x, const Tensor& source) {
  CheckTarget("CopyInPlace", x, source);
  Tensor operand = raw::To(source, x.device());
  operand = raw::Expand(operand, x.shape());
  const bool same = operand.strides() == x.strides() && operand.offset() == x.offset();
  if (operand.SharesStorageWith(x) && !same) operand = raw::Clone(operand);
  Tensor target = x;
  Call<op::Copy>(target, operand);
  if (IsFloatingPoint(x.dtype()) && ShouldRecord({&x, &source})) {
    Record(
        "CopyInPlace", {&x}, {&x, &source},
        [target = GradTarget(source), device = source.device()](BackwardContext& context) {
          if (!context.NeedsGrad(1)) return;
          context.SetGrad(1, raw::To(target.From(context.TakeGradOutput()), device));
        },
        RecordKind::kInPlace);
  }
}

void AddInPlace(const Tensor& x, const Tensor& other, Scalar factor) {
  CheckTarget("AddInPlace", x, other);
  CheckResultType("AddInPlace", x, PromoteTypes(other.dtype(), TypeOf(factor)));
  Tensor target = x;
  Call<op::AddScaled>(target, OperandFor(x, other), factor);
  if (ShouldRecord({&x, &other})) {
    Record(
        "AddInPlace", {&x}, {&x, &other},
        [target = GradTarget(other), factor](BackwardContext& context) {
          const Tensor grad_out = context.TakeGradOutput();
          if (context.NeedsGrad(0)) context.SetGrad(0, grad_out);
          if (context.NeedsGrad(1)) {
            const Tensor sum = raw::SumToShape(grad_out, target.shape);
            Tensor grad = Tensor::EmptyLike(sum);
            Call<op::MulScalar>(grad, sum, factor);
            context.SetGrad(1, raw::To(grad, target.dtype));
          }
        },
        RecordKind::kInPlace);
  }
}

void MulInPlace(const Tensor& x, const Tensor& other) {
  CheckTarget("MulInPlace", x, other);
  CheckResultType("MulInPlace", x, other.dtype());
  const bool record = ShouldRecord({&x, &other});
  SavedTensor before;
  // The value that the write destroys.
  if (record && other.requires_grad()) before = SavedTensor(raw::Clone(x));
  SavedTensor factor;
  if (record && x.requires_grad()) {
    factor = SavedTensor(other.SharesStorageWith(x) ? raw::Clone(other) : other);
  }
  Tensor target = x;
  Call<op::Mul>(target, target, OperandFor(x, other));
  if (record) {
    Record(
        "MulInPlace", {&x}, {&x, &other},
        [before = std::move(before), factor = std::move(factor),
         target = GradTarget(other)](BackwardContext& context) {
          const Tensor grad_out = context.TakeGradOutput();
          const auto product = [&](const Tensor& value) {
            Tensor grad = Tensor::EmptyLike(grad_out);
            Call<op::Mul>(grad, grad_out,
                          detail::AsOperand(value, grad_out.shape(), grad_out.dtype()));
            return grad;
          };
          if (context.NeedsGrad(0)) context.SetGrad(0, product(factor.Unpack()));
          if (context.NeedsGrad(1)) context.SetGrad(1, target.From(product(before.Unpack())));
        },
        RecordKind::kInPlace);
  }
}

void MulInPlace(const Tensor& x, Scalar factor) {
  CheckTarget("MulInPlace", x);
  CheckResultType("MulInPlace", x, TypeOf(factor));
  Tensor target = x;
  Call<op::MulScalar>(target, target, factor);
  if (ShouldRecord({&x})) {
    Record(
        "MulInPlace", {&x}, {&x},
        [factor](BackwardContext& context) {
          const Tensor grad_out = context.TakeGradOutput();
          Tensor grad_x = raw::BufferFor(grad_out);
          Call<op::MulScalar>(grad_x, grad_out, factor);
          context.SetGrad(0, std::move(grad_x));
        },
        RecordKind::kInPlace);
  }
}

}  // namespace infini_train
