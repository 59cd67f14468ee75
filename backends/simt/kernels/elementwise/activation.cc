#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/kernels/elementwise/elementwise.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

// A function of x, and the gradient from that of the output and the slope at x.
#define INFINI_TRAIN_ACTIVATION(Name, value, slope) \
  struct Name##Op {                                 \
    template <typename T>                           \
    SIMT_DEVICE T operator()(T x) const {           \
      return value;                                 \
    }                                               \
  };                                                \
  struct Name##BackwardOp {                         \
    template <typename T>                           \
    SIMT_DEVICE T operator()(T grad, T x) const {   \
      return grad * slope;                          \
    }                                               \
  };
INFINI_TRAIN_ACTIVATION(Silu, Silu(x), SiluSlope(x, Sigmoid(x)))
INFINI_TRAIN_ACTIVATION(GeluTanh, GeluTanh(x), GeluTanhSlope(x))
INFINI_TRAIN_ACTIVATION(GeluErf, GeluErf(x), GeluErfSlope(x))
#undef INFINI_TRAIN_ACTIVATION

void SiluKernel(const Context& context, Tensor& out, const Tensor& x) {
  RunElementwise(context, "Silu", FloatingTypes{}, SiluOp(), out, x);
}

void SiluBackwardKernel(const Context& context, Tensor& grad_x, const Tensor& grad_y,
                        const Tensor& x) {
  RunElementwise(context, "SiluBackward", FloatingTypes{}, SiluBackwardOp(), grad_x, grad_y, x);
}

void GeluKernel(const Context& context, Tensor& out, const Tensor& x, bool tanh_approximation) {
  if (tanh_approximation) {
    RunElementwise(context, "Gelu", FloatingTypes{}, GeluTanhOp(), out, x);
  } else {
    RunElementwise(context, "Gelu", FloatingTypes{}, GeluErfOp(), out, x);
  }
}

void GeluBackwardKernel(const Context& context, Tensor& grad_x, const Tensor& grad_y,
                        const Tensor& x, bool tanh_approximation) {
  constexpr FloatingTypes kTypes;
  if (tanh_approximation) {
    RunElementwise(context, "GeluBackward", kTypes, GeluTanhBackwardOp(), grad_x, grad_y, x);
  } else {
    RunElementwise(context, "GeluBackward", kTypes, GeluErfBackwardOp(), grad_x, grad_y, x);
  }
}

}  // namespace

SIMT_REGISTER_KERNEL(Silu, &SiluKernel);
SIMT_REGISTER_KERNEL(SiluBackward, &SiluBackwardKernel);
SIMT_REGISTER_KERNEL(Gelu, &GeluKernel);
SIMT_REGISTER_KERNEL(GeluBackward, &GeluBackwardKernel);

}  // namespace infini_train::simt
