#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/node.h"
#include "infini_train/autograd/selective_recompute.h"
#include "infini_train/core/error.h"

namespace infini_train {
namespace {

using autograd::BackwardContext;
using autograd::Record;
using autograd::SavedTensor;
using autograd::ShouldRecord;
using detail::kCall;

enum class Saves : std::uint8_t { kNothing, kInput, kOutput };

/// A function of one tensor: what it computes, what backward needs of it, and its gradient.
struct UnaryFunction {
  std::string_view name;
  void (*compute)(Tensor& out, const Tensor& x);
  Saves saves;
  /// `grad_x` may be `grad_y` itself.
  void (*gradient)(Tensor& grad_x, const Tensor& grad_y, const Tensor& saved);
  bool takes_integers = false;
};

void NegGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor&) {
  Call<op::Neg>(grad_x, grad_y);
}

void AbsGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor& x) {
  const Tensor zero = raw::Expand(raw::Zeros({}, x.dtype(), x.device()), x.shape());
  Tensor mask = Tensor::Empty(x.shape(), DataType::kBool, x.device());
  Call<op::Eq>(mask, x, zero);
  Call<op::MaskedFill>(grad_x, grad_y, mask, Scalar(0));
  Tensor negated = Tensor::EmptyLike(grad_x);
  Call<op::Neg>(negated, grad_x);
  Call<op::Lt>(mask, x, zero);
  Call<op::Where>(grad_x, mask, negated, grad_x);
}

void SquareGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor& x) {
  Call<op::MulScalar>(grad_x, grad_y, Scalar(2));
  Call<op::Mul>(grad_x, grad_x, x);
}

void SqrtGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor& y) {
  Call<op::MulScalar>(grad_x, grad_y, Scalar(0.5));
  Call<op::Div>(grad_x, grad_x, y);
}

void RsqrtGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor& y) {
  Call<op::MulScalar>(grad_x, grad_y, Scalar(-0.5));
  for (int power = 0; power < 3; ++power)
    Call<op::Mul>(grad_x, grad_x, y);
}

void ReciprocalGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor& y) {
  Call<op::Neg>(grad_x, grad_y);
  Call<op::Mul>(grad_x, grad_x, y);
  Call<op::Mul>(grad_x, grad_x, y);
}

void SinGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor& x) {
  Tensor slope = Tensor::EmptyLike(x);
  Call<op::Cos>(slope, x);
  Call<op::Mul>(grad_x, grad_y, slope);
}

void CosGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor& x) {
  Tensor slope = Tensor::EmptyLike(x);
  Call<op::Sin>(slope, x);
  Call<op::Neg>(slope, slope);
  Call<op::Mul>(grad_x, grad_y, slope);
}

template <bool kTanhApproximation>
void GeluCompute(Tensor& out, const Tensor& x) {
  Call<op::Gelu>(out, x, kTanhApproximation);
}

template <bool kTanhApproximation>
void GeluGradient(Tensor& grad_x, const Tensor& grad_y, const Tensor& x) {
  Call<op::GeluBackward>(grad_x, grad_y, x, kTanhApproximation);
}

constexpr UnaryFunction kNeg = {"Neg", kCall<op::Neg>, Saves::kNothing, NegGradient, true};
constexpr UnaryFunction kAbs = {"Abs", kCall<op::Abs>, Saves::kInput, AbsGradient, true};
constexpr UnaryFunction kSquare = {"Square", kCall<op::Square>, Saves::kInput, SquareGradient,
                                   true};
constexpr UnaryFunction kExp = {"Exp", kCall<op::Exp>, Saves::kOutput, kCall<op::Mul>};
constexpr UnaryFunction kLog = {"Log", kCall<op::Log>, Saves::kInput, kCall<op::Div>};
constexpr UnaryFunction kSqrt = {"Sqrt", kCall<op::Sqrt>, Saves::kOutput, SqrtGradient};
constexpr UnaryFunction kRsqrt = {"Rsqrt", kCall<op::Rsqrt>, Saves::kOutput, RsqrtGradient};
constexpr UnaryFunction kReciprocal = {"Reciprocal", kCall<op::Reciprocal>, Saves::kOutput,
                                       ReciprocalGradient};
constexpr UnaryFunction kSin = {"Sin", kCall<op::Sin>, Saves::kInput, SinGradient};
constexpr UnaryFunction kCos = {"Cos", kCall<op::Cos>, Saves::kInput, CosGradient};
constexpr UnaryFunction kTanh = {"Tanh", kCall<op::Tanh>, Saves::kOutput, kCall<op::TanhBackward>};
constexpr UnaryFunction kSigmoid = {"Sigmoid", kCall<op::Sigmoid>, Saves::kOutput,
                                    kCall<op::SigmoidBackward>};
constexpr UnaryFunction kSilu = {"Silu", kCall<op::Silu>, Saves::kInput, kCall<op::SiluBackward>};
constexpr UnaryFunction kGelu = {"Gelu", GeluCompute<false>, Saves::kInput, GeluGradient<false>};
constexpr UnaryFunction kGeluTanh = {"Gelu", GeluCompute<true>, Saves::kInput, GeluGradient<true>};

void CheckUnary(const UnaryFunction& function, const Tensor& x) {
  if (IsFloatingPoint(x.dtype())) return;
  const bool is_signed = x.dtype() == DataType::kInt64 || x.dtype() == DataType::kInt32;
  if (function.takes_integers && is_signed) return;
  detail::ThrowUnsupportedDataType(
      function.name, x.dtype(),
      function.takes_integers ? "a floating or signed integer type" : "a floating type");
}

Tensor Apply(const UnaryFunction& function, const Tensor& x) {
  CheckUnary(function, x);
  Tensor out = Tensor::EmptyLike(x);
  function.compute(out, x);
  if (ShouldRecord({&x})) {
    SavedTensor saved;
    if (function.saves != Saves::kNothing) {
      saved = SavedTensor(function.saves == Saves::kInput ? x : out);
    }
    Record(function.name, {&out}, {&x},
           [&function, saved = std::move(saved)](BackwardContext& context) {
             const Tensor grad_out = context.TakeGradOutput();
             Tensor grad_x = raw::BufferFor(grad_out);
             function.gradient(grad_x, grad_out, saved.Unpack());
             context.SetGrad(0, std::move(grad_x));
           });
    if (SelectiveRecompute::Enabled() && function.saves == Saves::kInput) {
      autograd::SetRecompute(out, [&function, input = SavedTensor(x)] {
        const Tensor x = input.Unpack();
        Tensor out = Tensor::EmptyLike(x);
        function.compute(out, x);
        return out;
      });
    }
  }
  return out;
}

}  // namespace

Tensor Neg(const Tensor& x) {
  return Apply(kNeg, x);
}
Tensor Abs(const Tensor& x) {
  return Apply(kAbs, x);
}
Tensor Square(const Tensor& x) {
  return Apply(kSquare, x);
}
Tensor Exp(const Tensor& x) {
  return Apply(kExp, x);
}
Tensor Log(const Tensor& x) {
  return Apply(kLog, x);
}
Tensor Sqrt(const Tensor& x) {
  return Apply(kSqrt, x);
}
Tensor Rsqrt(const Tensor& x) {
  return Apply(kRsqrt, x);
}
Tensor Reciprocal(const Tensor& x) {
  return Apply(kReciprocal, x);
}
Tensor Sin(const Tensor& x) {
  return Apply(kSin, x);
}
Tensor Cos(const Tensor& x) {
  return Apply(kCos, x);
}
Tensor Tanh(const Tensor& x) {
  return Apply(kTanh, x);
}
Tensor Sigmoid(const Tensor& x) {
  return Apply(kSigmoid, x);
}
Tensor Silu(const Tensor& x) {
  return Apply(kSilu, x);
}
Tensor Gelu(const Tensor& x, GeluApproximation approximation) {
  return Apply(approximation == GeluApproximation::kTanh ? kGeluTanh : kGelu, x);
}

Tensor SwiGlu(const Tensor& x) {
  detail::CheckFloating("SwiGlu", x);
  if (x.rank() == 0 || x.size(-1) % 2 != 0) {
    throw Error(
        fmt::format("SwiGlu: expected x [.., 2F] = [gate | up], got {}", x.shape().ToString()));
  }
  Dims shape = x.shape();
  shape.back() /= 2;
  const Tensor packed = raw::AsMatrix(raw::Contiguous(x));
  Tensor out = Tensor::Empty(shape, x.dtype(), x.device());
  Tensor out_rows = raw::AsMatrix(out);
  Call<op::SwiGlu>(out_rows, packed);
  if (ShouldRecord({&x})) {
    Record("SwiGlu", {&out}, {&x},
           [packed = SavedTensor(packed), shape = x.shape()](BackwardContext& context) {
             const Tensor x = packed.Unpack();
             const Tensor grad_out = raw::AsMatrix(raw::Contiguous(context.TakeGradOutput()));
             Tensor grad_x = Tensor::Empty(shape, x.dtype(), x.device());
             Tensor grad_rows = raw::AsMatrix(grad_x);
             Tensor no_out;
             Call<op::SwiGluBackward>(grad_rows, no_out, grad_out, x);
             context.SetGrad(0, std::move(grad_x));
           });
    if (SelectiveRecompute::Enabled()) {
      autograd::SetRecompute(out, [packed = SavedTensor(packed), shape] {
        const Tensor x = packed.Unpack();
        Tensor out = Tensor::Empty(shape, x.dtype(), x.device());
        Tensor rows = raw::AsMatrix(out);
        Call<op::SwiGlu>(rows, x);
        return out;
      });
    }
  }
  return out;
}

Tensor Dropout(const Tensor& x, double p, bool training, Generator* generator) {
  detail::CheckFloating("Dropout", x);
  if (!(p >= 0 && p < 1)) {
    throw Error(fmt::format("Dropout: expected a probability in [0, 1), got {}", p));
  }
  if (!training || p == 0) return x;
  const Generator::State state = detail::NextRandomState(generator, x.device());
  Tensor out = Tensor::EmptyLike(x);
  Call<op::Dropout>(out, raw::Contiguous(x), p, state);
  if (ShouldRecord({&x})) {
    Record("Dropout", {&out}, {&x}, [p, state](BackwardContext& context) {
      const Tensor grad_out = raw::Contiguous(context.TakeGradOutput());
      Tensor grad_x = raw::BufferFor(grad_out);
      Call<op::Dropout>(grad_x, grad_out, p, state);
      context.SetGrad(0, std::move(grad_x));
    });
    autograd::SetRecomputeFrom(x, out, [p, state](const Tensor& x) {
      Tensor out = Tensor::EmptyLike(x);
      Call<op::Dropout>(out, raw::Contiguous(x), p, state);
      return out;
    });
  }
  return out;
}

}  // namespace infini_train
