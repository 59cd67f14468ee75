#include <numbers>
#include <type_traits>

#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/kernels/fp8/quantize.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

/// x s and its slope s + x s (1 - s) y', where s = 1 / (1 + e^-y) and y is twice the number whose
/// tanh GELU takes: few instructions, exact enough for the half types.
struct FastGelu {
  SIMT_DEVICE explicit FastGelu(float x) : x(Clip(x, kGeluTanhLimit<float>)) {
    constexpr float kFactor = -2 * kSqrtTwoOverPi<float> * std::numbers::log2e_v<float>;
    const float square = this->x * this->x;
    s = 1.0f / (1.0f + FastExp2(kFactor * this->x * Fma(kGeluCubic<float>, square, 1.0f)));
    slope = 2 * kSqrtTwoOverPi<float> * Fma(3 * kGeluCubic<float>, square, 1.0f);
  }

  float x, s, slope;
};

// Both round to T, as the ops that they stand for do.
template <bool kTanh>
struct GeluOf {
  template <typename T>
  SIMT_DEVICE T operator()(T x, T) const {
    const auto value = ToCompute(x);
    if constexpr (kTanh && sizeof(T) == 2) {
      const FastGelu gelu(value);
      return FromCompute<T>(AtLeast(value, -kGeluTanhLimit<float>) * gelu.s);
    } else {
      return FromCompute<T>(kTanh ? GeluTanh(value) : GeluErf(value));
    }
  }
};
template <bool kTanh>
struct GeluGradient {
  template <typename T>
  SIMT_DEVICE T operator()(T grad_y, T x) const {
    const auto value = ToCompute(x);
    if constexpr (kTanh && sizeof(T) == 2) {
      const FastGelu gelu(value);
      const float slope = Fma(gelu.x * gelu.s * (1.0f - gelu.s), gelu.slope, gelu.s);
      return FromCompute<T>(ToCompute(grad_y) * slope);
    } else {
      return FromCompute<T>(ToCompute(grad_y) *
                            (kTanh ? GeluTanhSlope(value) : GeluErfSlope(value)));
    }
  }
};

/// Calls `body(std::bool_constant<value>{})`.
template <typename Body>
void DispatchBool(bool value, const Body& body) {
  if (value) {
    body(std::true_type{});
  } else {
    body(std::false_type{});
  }
}

void Fp8QuantizeGelu(const Context& context, Tensor& out, Tensor& transposed, Tensor& amax,
                     const Tensor& x, const Tensor& scale, Fp8Format format,
                     bool tanh_approximation) {
  Tensor no_sums;
  DispatchFloating("Fp8QuantizeGelu", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    DispatchBool(tanh_approximation, [&](auto tanh) {
      LaunchQuantize<1, T>(context, out, transposed, no_sums, amax, x, Tensor(), scale, format,
                           GeluOf<tanh.value>());
    });
  });
}

void Fp8QuantizeGeluBackward(const Context& context, Tensor& out, Tensor& transposed,
                             Tensor& column_sums, Tensor& amax, const Tensor& grad_y,
                             const Tensor& x, const Tensor& scale, Fp8Format format,
                             bool tanh_approximation) {
  DispatchFloating("Fp8QuantizeGeluBackward", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    DispatchBool(tanh_approximation, [&](auto tanh) {
      LaunchQuantize<2, T>(context, out, transposed, column_sums, amax, grad_y, x, scale, format,
                           GeluGradient<tanh.value>());
    });
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(Fp8QuantizeGelu, &Fp8QuantizeGelu);
SIMT_REGISTER_KERNEL(Fp8QuantizeGeluBackward, &Fp8QuantizeGeluBackward);

}  // namespace infini_train::simt
