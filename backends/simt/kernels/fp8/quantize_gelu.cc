#include <type_traits>

#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/kernels/fp8/quantize.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

template <typename T, bool kTanh>
struct GeluOf {
  using C = ComputeType<T>;
  SIMT_DEVICE C operator()(C x, C) const { return kTanh ? GeluTanh<T>(x) : GeluErf(x); }
};
template <typename T, bool kTanh>
struct GeluGradient {
  using C = ComputeType<T>;
  SIMT_DEVICE C operator()(C grad_y, C x) const {
    return grad_y * (kTanh ? GeluTanhSlope<T>(x) : GeluErfSlope(x));
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
