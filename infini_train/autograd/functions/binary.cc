#include <string_view>
#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/node.h"

namespace infini_train {
namespace {

using autograd::BackwardContext;
using autograd::Record;
using autograd::SavedTensor;
using autograd::ShouldRecord;
using autograd::UsesColumnSums;
using detail::GradTarget;
using detail::kCall;

using Compute = void (*)(Tensor& out, const Tensor& a, const Tensor& b);

DataType ArithmeticType(std::string_view name, const Tensor& a, const Tensor& b) {
  const DataType dtype = PromoteTypes(a.dtype(), b.dtype());
  if (dtype == DataType::kBool) detail::ThrowUnsupportedDataType(name, dtype, "a numeric type");
  return dtype;
}

DataType FloatingType(DataType dtype) {
  return IsFloatingPoint(dtype) ? dtype : DataType::kFloat32;
}

/// compute(a, b) in `dtype`, broadcast.
Tensor Evaluate(Compute compute, const Tensor& a, const Tensor& b, DataType dtype) {
  if (a.dtype() == dtype && b.dtype() == dtype && a.shape() == b.shape()) {
    Tensor out = Tensor::EmptyLike(a);
    compute(out, a, b);
    return out;
  }
  const Dims shape = BroadcastShapes(a.shape(), b.shape());
  Tensor out = Tensor::Empty(shape, dtype, a.device());
  compute(out, detail::AsOperand(a, shape, dtype), detail::AsOperand(b, shape, dtype));
  return out;
}

/// compute(grad, other) for an operand of the function that grad comes from, in grad's memory where
/// nobody else can see it.
Tensor Combine(Compute compute, const Tensor& grad, const Tensor& other) {
  Tensor result = raw::BufferFor(grad);
  compute(result, grad, detail::AsOperand(other, grad.shape(), grad.dtype()));
  return result;
}

SavedTensor SaveIf(bool needed, const Tensor& x) {
  return needed ? SavedTensor(x) : SavedTensor();
}

/// a + b, or a - b where `subtract`.
Tensor AddOrSub(std::string_view name, Compute compute, const Tensor& a, const Tensor& b,
                bool subtract) {
  Tensor out = Evaluate(compute, a, b, ArithmeticType(name, a, b));
  if (ShouldRecord({&a, &b})) {
    auto& node = Record(
        name, {&out}, {&a, &b},
        [target_a = GradTarget(a), target_b = GradTarget(b), subtract](BackwardContext& context) {
          const Tensor grad_out = context.TakeGradOutput();
          const auto hand_on = [&](int input, Tensor grad) {
            const bool unchanged = grad.IsSameAs(grad_out);
            context.SetGrad(input, std::move(grad),
                            unchanged ? context.grad_output_column_sums() : Tensor());
          };
          if (context.NeedsGrad(0)) hand_on(0, target_a.From(grad_out));
          if (context.NeedsGrad(1)) {
            Tensor grad_b = target_b.From(grad_out);
            if (subtract) {
              Tensor negated = Tensor::EmptyLike(grad_b);
              Call<op::Neg>(negated, grad_b);
              grad_b = std::move(negated);
            }
            hand_on(1, std::move(grad_b));
          }
        });
    node.set_uses_column_sums(UsesColumnSums(a) || UsesColumnSums(b));
  }
  return out;
}

/// Maximum and Minimum: `loses(a, b)` says where a is not chosen.
Tensor Choose(std::string_view name, Compute compute, Compute loses, Compute wins, const Tensor& a,
              const Tensor& b) {
  Tensor out = Evaluate(compute, a, b, ArithmeticType(name, a, b));
  if (ShouldRecord({&a, &b})) {
    Record(name, {&out}, {&a, &b},
           [a = SavedTensor(a), b = SavedTensor(b), target_a = GradTarget(a),
            target_b = GradTarget(b), loses, wins](BackwardContext& context) {
             Tensor grad_out = context.TakeGradOutput();
             const Dims& shape = grad_out.shape();
             const Tensor left = detail::AsOperand(a.Unpack(), shape, grad_out.dtype());
             const Tensor right = detail::AsOperand(b.Unpack(), shape, grad_out.dtype());
             Tensor mask = Tensor::Empty(shape, DataType::kBool, grad_out.device());
             Tensor shared = Tensor::EmptyLike(grad_out);
             Call<op::MulScalar>(shared, grad_out, Scalar(0.5));
             Call<op::Eq>(mask, left, right);
             Call<op::Where>(shared, mask, shared, grad_out);
             const auto part = [&](Compute dropped) {
               dropped(mask, left, right);
               Tensor grad = Tensor::EmptyLike(shared);
               Call<op::MaskedFill>(grad, shared, mask, Scalar(0));
               return grad;
             };
             if (context.NeedsGrad(0)) context.SetGrad(0, target_a.From(part(loses)));
             if (context.NeedsGrad(1)) context.SetGrad(1, target_b.From(part(wins)));
           });
  }
  return out;
}

/// A function of a tensor and a number.
struct ScalarFunction {
  std::string_view name;
  void (*compute)(Tensor& out, const Tensor& x, Scalar value);
  bool saves_input;
  /// `grad_x` may be `grad_y` itself. Null: the gradient passes unchanged.
  void (*gradient)(Tensor& grad_x, const Tensor& grad_y, const Tensor& x, Scalar value);
  bool gives_floating = false;
};

void NegatedGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor&, Scalar) {
  Call<op::Neg>(grad_x, grad_y);
}

void MulGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor&, Scalar value) {
  Call<op::MulScalar>(grad_x, grad_y, value);
}

void DivGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor&, Scalar value) {
  Call<op::DivScalar>(grad_x, grad_y, value);
}

void RdivGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor& x, Scalar value) {
  Tensor slope = Tensor::EmptyLike(x);
  Call<op::RdivScalar>(slope, x, Scalar(-value.To<double>()));
  Call<op::Div>(slope, slope, x);
  Call<op::Mul>(grad_x, grad_y, slope);
}

void PowGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor& x, Scalar value) {
  const double exponent = value.To<double>();
  if (exponent == 0) {
    // Also where x is 0 and 0 * x^-1 would be NaN.
    Call<op::Fill>(grad_x, Scalar(0));
    return;
  }
  Tensor slope = Tensor::EmptyLike(x);
  Call<op::PowScalar>(slope, x, Scalar(exponent - 1));
  Call<op::MulScalar>(slope, slope, value);
  Call<op::Mul>(grad_x, grad_y, slope);
}

constexpr ScalarFunction kAdd = {"Add", kCall<op::AddScalar>, false, nullptr};
constexpr ScalarFunction kSub = {"Sub", kCall<op::AddScalar>, false, nullptr};
constexpr ScalarFunction kRsub = {"Sub", kCall<op::RsubScalar>, false, NegatedGradient};
constexpr ScalarFunction kMul = {"Mul", kCall<op::MulScalar>, false, MulGradient};
constexpr ScalarFunction kDiv = {"Div", kCall<op::DivScalar>, false, DivGradient, true};
constexpr ScalarFunction kRdiv = {"Div", kCall<op::RdivScalar>, true, RdivGradient, true};
constexpr ScalarFunction kPow = {"Pow", kCall<op::PowScalar>, true, PowGradient, true};

Tensor Apply(const ScalarFunction& function, const Tensor& x, Scalar value) {
  DataType dtype = detail::TypeWithNumber(x.dtype(), value);
  if (function.gives_floating) dtype = FloatingType(dtype);
  Tensor out = Tensor::Empty(x.shape(), dtype, x.device());
  if (x.dtype() == dtype) {
    function.compute(out, x, value);
  } else {
    function.compute(out, raw::To(x, dtype), value);
  }
  if (ShouldRecord({&x})) {
    Record(function.name, {&out}, {&x},
           [&function, value, x = SaveIf(function.saves_input, x)](BackwardContext& context) {
             Tensor grad_out = context.TakeGradOutput();
             if (function.gradient == nullptr) {
               context.SetGrad(0, std::move(grad_out));
               return;
             }
             Tensor grad_x = raw::BufferFor(grad_out);
             function.gradient(grad_x, grad_out, x.Unpack(), value);
             context.SetGrad(0, std::move(grad_x));
           });
  }
  return out;
}

Scalar Negated(Scalar value) {
  // Modulo 2^64, as subtraction from an integer tensor is.
  if (value.is_integer()) return Scalar(0 - static_cast<std::uint64_t>(value.To<std::int64_t>()));
  return Scalar(-value.To<double>());
}

}  // namespace

Tensor Add(const Tensor& a, const Tensor& b) {
  return AddOrSub("Add", kCall<op::Add>, a, b, false);
}

Tensor Sub(const Tensor& a, const Tensor& b) {
  return AddOrSub("Sub", kCall<op::Sub>, a, b, true);
}

Tensor Mul(const Tensor& a, const Tensor& b) {
  Tensor out = Evaluate(kCall<op::Mul>, a, b, ArithmeticType("Mul", a, b));
  if (ShouldRecord({&a, &b})) {
    Record("Mul", {&out}, {&a, &b},
           [a = SaveIf(b.requires_grad(), a), b = SaveIf(a.requires_grad(), b),
            target_a = GradTarget(a), target_b = GradTarget(b)](BackwardContext& context) {
             Tensor grad_out = context.TakeGradOutput();
             if (context.NeedsGrad(0)) {
               // The last use of grad_out may take its memory.
               const Tensor grad = context.NeedsGrad(1) ? grad_out : std::move(grad_out);
               context.SetGrad(0, target_a.From(Combine(kCall<op::Mul>, grad, b.Unpack())));
             }
             if (context.NeedsGrad(1)) {
               context.SetGrad(1, target_b.From(Combine(kCall<op::Mul>, grad_out, a.Unpack())));
             }
           });
  }
  return out;
}

Tensor Div(const Tensor& a, const Tensor& b) {
  Tensor out = Evaluate(kCall<op::Div>, a, b, FloatingType(PromoteTypes(a.dtype(), b.dtype())));
  if (ShouldRecord({&a, &b})) {
    Record(
        "Div", {&out}, {&a, &b},
        [a = SaveIf(b.requires_grad(), a), b = SavedTensor(b), target_a = GradTarget(a),
         target_b = GradTarget(b)](BackwardContext& context) {
          const Tensor divisor = b.Unpack();
          const Tensor grad = Combine(kCall<op::Div>, context.TakeGradOutput(), divisor);
          if (context.NeedsGrad(0)) context.SetGrad(0, target_a.From(grad));
          if (context.NeedsGrad(1)) {
            Tensor grad_b = raw::BufferFor(grad);
            Call<op::Mul>(grad_b, grad, detail::AsOperand(a.Unpack(), grad.shape(), grad.dtype()));
            Call<op::Div>(grad_b, grad_b, detail::AsOperand(divisor, grad.shape(), grad.dtype()));
            Call<op::Neg>(grad_b, grad_b);
            context.SetGrad(1, target_b.From(grad_b));
          }
        });
  }
  return out;
}

Tensor Pow(const Tensor& a, const Tensor& b) {
  Tensor out = Evaluate(kCall<op::Pow>, a, b, FloatingType(PromoteTypes(a.dtype(), b.dtype())));
  if (ShouldRecord({&a, &b})) {
    Record("Pow", {&out}, {&a, &b},
           [a = SavedTensor(a), b = SavedTensor(b), out = SaveIf(b.requires_grad(), out),
            target_a = GradTarget(a), target_b = GradTarget(b)](BackwardContext& context) {
             const Tensor grad_out = context.TakeGradOutput();
             const Dims& shape = grad_out.shape();
             const DataType dtype = grad_out.dtype();
             const Tensor base = detail::AsOperand(a.Unpack(), shape, dtype);
             const Tensor exponent = detail::AsOperand(b.Unpack(), shape, dtype);
             const Tensor zero = raw::Expand(raw::Zeros({}, dtype, grad_out.device()), shape);
             Tensor slope = Tensor::EmptyLike(grad_out);
             Tensor mask = Tensor::Empty(shape, DataType::kBool, grad_out.device());
             if (context.NeedsGrad(0)) {
               // b a^(b-1), and 0 where b is 0.
               Call<op::AddScalar>(slope, exponent, Scalar(-1));
               Call<op::Pow>(slope, base, slope);
               Call<op::Mul>(slope, slope, exponent);
               Call<op::Mul>(slope, slope, grad_out);
               Call<op::Eq>(mask, exponent, zero);
               Call<op::MaskedFill>(slope, slope, mask, Scalar(0));
               context.SetGrad(0, target_a.From(slope));
             }
             if (context.NeedsGrad(1)) {
               // a^b ln a, and 0 where a is 0 and b is not negative.
               Tensor slope = Tensor::EmptyLike(grad_out);
               Tensor not_negative = Tensor::EmptyLike(mask);
               Call<op::Log>(slope, base);
               Call<op::Mul>(slope, slope, out.Unpack());
               Call<op::Mul>(slope, slope, grad_out);
               Call<op::Eq>(mask, base, zero);
               Call<op::Ge>(not_negative, exponent, zero);
               Call<op::LogicalAnd>(mask, mask, not_negative);
               Call<op::MaskedFill>(slope, slope, mask, Scalar(0));
               context.SetGrad(1, target_b.From(slope));
             }
           });
  }
  return out;
}

Tensor Maximum(const Tensor& a, const Tensor& b) {
  return Choose("Maximum", kCall<op::Maximum>, kCall<op::Lt>, kCall<op::Gt>, a, b);
}

Tensor Minimum(const Tensor& a, const Tensor& b) {
  return Choose("Minimum", kCall<op::Minimum>, kCall<op::Gt>, kCall<op::Lt>, a, b);
}

Tensor Add(const Tensor& a, Scalar b) {
  return Apply(kAdd, a, b);
}
Tensor Sub(const Tensor& a, Scalar b) {
  return Apply(kSub, a, Negated(b));
}
Tensor Sub(Scalar a, const Tensor& b) {
  return Apply(kRsub, b, a);
}
Tensor Mul(const Tensor& a, Scalar b) {
  return Apply(kMul, a, b);
}
Tensor Div(const Tensor& a, Scalar b) {
  return Apply(kDiv, a, b);
}
Tensor Div(Scalar a, const Tensor& b) {
  return Apply(kRdiv, b, a);
}
Tensor Pow(const Tensor& a, Scalar b) {
  return Apply(kPow, a, b);
}

Tensor Clamp(const Tensor& x, Scalar low, Scalar high) {
  const DataType dtype = detail::TypeWithNumber(detail::TypeWithNumber(x.dtype(), low), high);
  Tensor out = Tensor::Empty(x.shape(), dtype, x.device());
  Call<op::Clamp>(out, raw::To(x, dtype), low, high);
  if (ShouldRecord({&x})) {
    Record("Clamp", {&out}, {&x}, [x = SavedTensor(x), low, high](BackwardContext& context) {
      const Tensor grad_out = context.TakeGradOutput();
      Tensor grad_x = raw::BufferFor(grad_out);
      if (low.To<double>() > high.To<double>()) {
        Call<op::Fill>(grad_x, Scalar(0));
      } else {
        const Tensor input = x.Unpack();
        Tensor clamped = Tensor::EmptyLike(input);
        Tensor outside = Tensor::Empty(input.shape(), DataType::kBool, input.device());
        Call<op::Clamp>(clamped, input, low, high);
        Call<op::Ne>(outside, clamped, input);
        Call<op::MaskedFill>(grad_x, grad_out, outside, Scalar(0));
      }
      context.SetGrad(0, std::move(grad_x));
    });
  }
  return out;
}

}  // namespace infini_train
