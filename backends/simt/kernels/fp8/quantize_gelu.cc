#include <numbers>
#include <type_traits>

#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/kernels/fp8/quantize.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

/// 1 / (1 + e^-y), where y is twice the number whose tanh GELU takes, so that GELU is x times it:
/// few instructions, exact enough for what becomes FP8. 0 or 1 where squares overflow.
SIMT_DEVICE float FastGeluFactor(float x, float square) {
  constexpr float kFactor = -2 * kSqrtTwoOverPi<float> * std::numbers::log2e_v<float>;
  return FastReciprocal(1.0f + FastExp2(x * Fma(kFactor * kGeluCubic<float>, square, kFactor)));
}

// The half types take a fast form, as their numbers are FP8 in the end; they are rounded once.
template <typename T, bool kTanh>
struct GeluOf {
  using C = ComputeType<T>;
  SIMT_DEVICE C operator()(C x, C) const {
    if constexpr (kTanh && sizeof(T) == 2) {
      return Max(x, -kGeluTanhLimit<float>) * FastGeluFactor(x, x * x);
    } else {
      return kTanh ? GeluTanh(x) : GeluErf(x);
    }
  }
};
/// The slope is s + x s (1 - s) y', with s as above.
template <typename T, bool kTanh>
struct GeluGradient {
  using C = ComputeType<T>;
  SIMT_DEVICE C operator()(C grad_y, C x) const {
    if constexpr (kTanh && sizeof(T) == 2) {
      constexpr float kFactor = 2 * kSqrtTwoOverPi<float>;
      // NaN is kept, and all of this has saturated beyond the limit.
      const float clipped = Min(Max(x, -kGeluTanhLimit<float>), kGeluTanhLimit<float>);
      const float square = clipped * clipped;
      const float s = FastGeluFactor(clipped, square);
      const float product = clipped * s;
      const float slope = Fma(3 * kFactor * kGeluCubic<float>, square, kFactor);
      return grad_y * Fma(Fma(-product, s, product), slope, s);
    } else {
      return grad_y * (kTanh ? GeluTanhSlope(x) : GeluErfSlope(x));
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
      LaunchQuantize<1, false, T>(context, out, transposed, no_sums, amax, x, Tensor(), scale,
                                  format, GeluOf<T, tanh.value>());
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
      LaunchQuantize<2, true, T>(context, out, transposed, column_sums, amax, grad_y, x, scale,
                                 format, GeluGradient<T, tanh.value>());
    });
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(Fp8QuantizeGelu, &Fp8QuantizeGelu);
SIMT_REGISTER_KERNEL(Fp8QuantizeGeluBackward, &Fp8QuantizeGeluBackward);

}  // namespace infini_train::simt
