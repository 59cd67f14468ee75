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
using autograd::SavedTensor;
using autograd::ShouldRecord;
using detail::GradTarget;
using detail::kCall;

using Compute = void (*)(Tensor& out, const Tensor& a, const Tensor& b);

void CheckBool(std::string_view name, const Tensor& x) {
  if (x.dtype() != DataType::kBool) detail::ThrowUnsupportedDataType(name, x.dtype(), "bool");
}

/// compute(a, b) in `dtype`, broadcast, as a bool tensor.
Tensor Evaluate(Compute compute, const Tensor& a, const Tensor& b, DataType dtype) {
  const Dims shape = BroadcastShapes(a.shape(), b.shape());
  Tensor out = Tensor::Empty(shape, DataType::kBool, a.device());
  compute(out, detail::AsOperand(a, shape, dtype), detail::AsOperand(b, shape, dtype));
  return out;
}

Tensor Compare(Compute compute, const Tensor& a, const Tensor& b) {
  return Evaluate(compute, a, b, PromoteTypes(a.dtype(), b.dtype()));
}

/// grad where `mask` is set (or, with `keep` false, where it is not), else 0.
Tensor Masked(const Tensor& grad, const Tensor& mask, bool keep) {
  const Tensor selector = raw::Expand(mask, grad.shape());
  Tensor result = Tensor::EmptyLike(grad);
  if (keep) {
    const Tensor zero = raw::Zeros({}, grad.dtype(), grad.device());
    Call<op::Where>(result, selector, grad, raw::Expand(zero, grad.shape()));
  } else {
    Call<op::MaskedFill>(result, grad, selector, Scalar(0));
  }
  return result;
}

}  // namespace

Tensor Eq(const Tensor& a, const Tensor& b) {
  return Compare(kCall<op::Eq>, a, b);
}
Tensor Ne(const Tensor& a, const Tensor& b) {
  return Compare(kCall<op::Ne>, a, b);
}
Tensor Lt(const Tensor& a, const Tensor& b) {
  return Compare(kCall<op::Lt>, a, b);
}
Tensor Le(const Tensor& a, const Tensor& b) {
  return Compare(kCall<op::Le>, a, b);
}
Tensor Gt(const Tensor& a, const Tensor& b) {
  return Compare(kCall<op::Gt>, a, b);
}
Tensor Ge(const Tensor& a, const Tensor& b) {
  return Compare(kCall<op::Ge>, a, b);
}

Tensor LogicalAnd(const Tensor& a, const Tensor& b) {
  CheckBool("LogicalAnd", a);
  CheckBool("LogicalAnd", b);
  return Evaluate(kCall<op::LogicalAnd>, a, b, DataType::kBool);
}

Tensor LogicalOr(const Tensor& a, const Tensor& b) {
  CheckBool("LogicalOr", a);
  CheckBool("LogicalOr", b);
  return Evaluate(kCall<op::LogicalOr>, a, b, DataType::kBool);
}

Tensor LogicalNot(const Tensor& x) {
  CheckBool("LogicalNot", x);
  Tensor out = Tensor::EmptyLike(x);
  Call<op::LogicalNot>(out, x);
  return out;
}

Tensor Where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  CheckBool("Where", condition);
  const DataType dtype = PromoteTypes(a.dtype(), b.dtype());
  const Dims shape = BroadcastShapes(condition.shape(), BroadcastShapes(a.shape(), b.shape()));
  Tensor out = Tensor::Empty(shape, dtype, condition.device());
  Call<op::Where>(out, raw::Expand(condition, shape), detail::AsOperand(a, shape, dtype),
                  detail::AsOperand(b, shape, dtype));
  if (ShouldRecord({&a, &b})) {
    Record("Where", {&out}, {&a, &b},
           [condition = SavedTensor(condition), target_a = GradTarget(a),
            target_b = GradTarget(b)](BackwardContext& context) {
             const Tensor grad_out = context.TakeGradOutput();
             const Tensor mask = condition.Unpack();
             if (context.NeedsGrad(0)) {
               context.SetGrad(0, target_a.From(Masked(grad_out, mask, true)));
             }
             if (context.NeedsGrad(1)) {
               context.SetGrad(1, target_b.From(Masked(grad_out, mask, false)));
             }
           });
  }
  return out;
}

Tensor MaskedFill(const Tensor& x, const Tensor& mask, Scalar value) {
  CheckBool("MaskedFill", mask);
  if (!IsFloatingPoint(x.dtype()) && !value.is_integer()) {
    throw Error(fmt::format("MaskedFill: expected an integer for a tensor of {}, got {}",
                            ToString(x.dtype()), value.To<double>()));
  }
  const Dims shape = BroadcastShapes(x.shape(), mask.shape());
  Tensor out = Tensor::Empty(shape, x.dtype(), x.device());
  Call<op::MaskedFill>(out, raw::Expand(x, shape), raw::Expand(mask, shape), value);
  if (ShouldRecord({&x})) {
    Record("MaskedFill", {&out}, {&x},
           [mask = SavedTensor(mask), target = GradTarget(x)](BackwardContext& context) {
             context.SetGrad(0,
                             target.From(Masked(context.TakeGradOutput(), mask.Unpack(), false)));
           });
  }
  return out;
}

}  // namespace infini_train
