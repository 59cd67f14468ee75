#include <type_traits>

#include "backends/simt/kernels/elementwise/elementwise.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

/// Integer arithmetic wraps: it runs in the unsigned type.
template <typename T>
SIMT_DEVICE T Negate(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(x));
  } else {
    return -x;
  }
}

struct AbsOp {
  template <typename T>
  SIMT_DEVICE T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) {
      return x < 0 ? Negate(x) : x;
    } else {
      return Abs(x);
    }
  }
};
struct SquareOp {
  template <typename T>
  SIMT_DEVICE T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) {
      const auto u = static_cast<std::make_unsigned_t<T>>(x);
      return static_cast<T>(u * u);
    } else {
      return x * x;
    }
  }
};

// One line for each function of one argument: name, types, expression.
#define INFINI_TRAIN_UNARY(Name, types, expression) \
  struct Name##Op {                                 \
    template <typename T>                           \
    SIMT_DEVICE T operator()(T x) const {           \
      return expression;                            \
    }                                               \
  };                                                \
  INFINI_TRAIN_UNARY_KERNEL(Name, types)
#define INFINI_TRAIN_UNARY_KERNEL(Name, types)                              \
  void Name##Kernel(const Context& context, Tensor& out, const Tensor& x) { \
    RunElementwise(context, #Name, types{}, Name##Op(), out, x);            \
  }                                                                         \
  SIMT_REGISTER_KERNEL(Name, &Name##Kernel)

INFINI_TRAIN_UNARY_KERNEL(Abs, SignedTypes);
INFINI_TRAIN_UNARY_KERNEL(Square, SignedTypes);
INFINI_TRAIN_UNARY(Neg, SignedTypes, Negate(x));
INFINI_TRAIN_UNARY(Exp, FloatingTypes, Exp(x));
INFINI_TRAIN_UNARY(Log, FloatingTypes, Log(x));
INFINI_TRAIN_UNARY(Sqrt, FloatingTypes, Sqrt(x));
INFINI_TRAIN_UNARY(Rsqrt, FloatingTypes, Rsqrt(x));
INFINI_TRAIN_UNARY(Reciprocal, FloatingTypes, T(1) / x);
INFINI_TRAIN_UNARY(Sin, FloatingTypes, Sin(x));
INFINI_TRAIN_UNARY(Cos, FloatingTypes, Cos(x));
INFINI_TRAIN_UNARY(Tanh, FloatingTypes, Tanh(x));
INFINI_TRAIN_UNARY(LogicalNot, Types<bool>, x == 0);

// The gradient from that of the output and the output.
#define INFINI_TRAIN_GRADIENT(Name, expression)                                     \
  struct Name##Op {                                                                 \
    template <typename T>                                                           \
    SIMT_DEVICE T operator()(T grad, T y) const {                                   \
      return expression;                                                            \
    }                                                                               \
  };                                                                                \
  void Name##Kernel(const Context& context, Tensor& grad_x, const Tensor& grad_y,   \
                    const Tensor& y) {                                              \
    RunElementwise(context, #Name, FloatingTypes{}, Name##Op(), grad_x, grad_y, y); \
  }                                                                                 \
  SIMT_REGISTER_KERNEL(Name, &Name##Kernel)

INFINI_TRAIN_GRADIENT(TanhBackward, grad*(T(1) - y * y));
INFINI_TRAIN_GRADIENT(SigmoidBackward, grad* y*(T(1) - y));

}  // namespace
}  // namespace infini_train::simt
