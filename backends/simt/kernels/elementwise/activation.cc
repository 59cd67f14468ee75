#include <string_view>

#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/kernels/elementwise/elementwise.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

/// out = Op<T>()(inputs...), where T is the type of all.
template <template <typename> typename Op, typename... Inputs>
void RunActivation(const Context& context, std::string_view name, const Tensor& out,
                   const Inputs&... inputs) {
  const auto op_for = [](auto tag) { return Op<typename decltype(tag)::type>(); };
  RunElementwiseFor(context, name, FloatingTypes{}, op_for, out, inputs...);
}

// A function of x, and the gradient from that of the output and the slope at x, of type E.
#define INFINI_TRAIN_ACTIVATION(Name, value, slope)                      \
  template <typename E>                                                  \
  struct Name##Op {                                                      \
    using C = ComputeType<E>;                                            \
    SIMT_DEVICE C operator()(C x) const { return value; }                \
  };                                                                     \
  template <typename E>                                                  \
  struct Name##BackwardOp {                                              \
    using C = ComputeType<E>;                                            \
    SIMT_DEVICE C operator()(C grad, C x) const { return grad * slope; } \
  };
INFINI_TRAIN_ACTIVATION(Silu, Silu<E>(x), SiluSlope<E>(x))
INFINI_TRAIN_ACTIVATION(GeluTanh, GeluTanh<E>(x), GeluTanhSlope<E>(x))
INFINI_TRAIN_ACTIVATION(GeluErf, GeluErf(x), GeluErfSlope(x))
#undef INFINI_TRAIN_ACTIVATION

template <typename E>
struct SigmoidOp {
  using C = ComputeType<E>;
  SIMT_DEVICE C operator()(C x) const { return Sigmoid<E>(x); }
};

void SigmoidKernel(const Context& context, Tensor& out, const Tensor& x) {
  RunActivation<SigmoidOp>(context, "Sigmoid", out, x);
}

void SiluKernel(const Context& context, Tensor& out, const Tensor& x) {
  RunActivation<SiluOp>(context, "Silu", out, x);
}

void SiluBackwardKernel(const Context& context, Tensor& grad_x, const Tensor& grad_y,
                        const Tensor& x) {
  RunActivation<SiluBackwardOp>(context, "SiluBackward", grad_x, grad_y, x);
}

void GeluKernel(const Context& context, Tensor& out, const Tensor& x, bool tanh_approximation) {
  if (tanh_approximation) {
    RunActivation<GeluTanhOp>(context, "Gelu", out, x);
  } else {
    RunActivation<GeluErfOp>(context, "Gelu", out, x);
  }
}

void GeluBackwardKernel(const Context& context, Tensor& grad_x, const Tensor& grad_y,
                        const Tensor& x, bool tanh_approximation) {
  if (tanh_approximation) {
    RunActivation<GeluTanhBackwardOp>(context, "GeluBackward", grad_x, grad_y, x);
  } else {
    RunActivation<GeluErfBackwardOp>(context, "GeluBackward", grad_x, grad_y, x);
  }
}

}  // namespace

SIMT_REGISTER_KERNEL(Sigmoid, &SigmoidKernel);
SIMT_REGISTER_KERNEL(Silu, &SiluKernel);
SIMT_REGISTER_KERNEL(SiluBackward, &SiluBackwardKernel);
SIMT_REGISTER_KERNEL(Gelu, &GeluKernel);
SIMT_REGISTER_KERNEL(GeluBackward, &GeluBackwardKernel);

}  // namespace infini_train::simt
