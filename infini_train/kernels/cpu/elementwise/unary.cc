#include <cmath>
#include <type_traits>

#include "infini_train/kernels/cpu/elementwise/loops.h"
#include "infini_train/kernels/cpu/math.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

/// Integer arithmetic wraps: it runs in the unsigned type.
template <typename T>
T Negate(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(-static_cast<std::make_unsigned_t<T>>(x));
  } else {
    return -x;
  }
}

struct NegOp {
  template <typename T>
  static T Apply(T x) {
    return Negate(x);
  }
};
struct AbsOp {
  template <typename T>
  static T Apply(T x) {
    if constexpr (std::is_integral_v<T>) return x < 0 ? Negate(x) : x;
    return std::fabs(x);
  }
};
struct SquareOp {
  template <typename T>
  static T Apply(T x) {
    if constexpr (std::is_integral_v<T>) {
      const auto u = static_cast<std::make_unsigned_t<T>>(x);
      return static_cast<T>(u * u);
    } else {
      return x * x;
    }
  }
};
struct LogicalNotOp {
  static std::uint8_t Apply(std::uint8_t x) { return x == 0; }
};

// One struct for each elementary function of one floating argument.
#define INFINI_TRAIN_FUNCTION(Name, expression) \
  struct Name##Op {                             \
    template <typename T>                       \
    static T Apply(T x) {                       \
      return expression;                        \
    }                                           \
  };
INFINI_TRAIN_FUNCTION(Exp, Exp(x))
INFINI_TRAIN_FUNCTION(Log, Log(x))
INFINI_TRAIN_FUNCTION(Sqrt, std::sqrt(x))
INFINI_TRAIN_FUNCTION(Rsqrt, T(1) / std::sqrt(x))
INFINI_TRAIN_FUNCTION(Reciprocal, T(1) / x)
INFINI_TRAIN_FUNCTION(Sin, std::sin(x))
INFINI_TRAIN_FUNCTION(Cos, std::cos(x))
INFINI_TRAIN_FUNCTION(Tanh, Tanh(x))
INFINI_TRAIN_FUNCTION(Sigmoid, Sigmoid(x))
#undef INFINI_TRAIN_FUNCTION

struct TanhBackwardOp {
  template <typename T>
  static T Apply(T grad, T y) {
    return grad * (T(1) - y * y);
  }
};
struct SigmoidBackwardOp {
  template <typename T>
  static T Apply(T grad, T y) {
    return grad * y * (T(1) - y);
  }
};

}  // namespace

#define INFINI_TRAIN_UNARY_KERNEL(Name, grain, ...)                              \
  static void Name##Kernel(const KernelContext&, Tensor& out, const Tensor& x) { \
    static constexpr LoopTable kLoops = UnaryLoops<Name##Op, __VA_ARGS__>();     \
    RunElementwise(#Name, kLoops, out, {x}, grain);                              \
  }                                                                              \
  REGISTER_KERNEL(kCPU, Name, &Name##Kernel)

INFINI_TRAIN_UNARY_KERNEL(Neg, kElementGrain, float, double, std::int64_t, std::int32_t);
INFINI_TRAIN_UNARY_KERNEL(Abs, kElementGrain, float, double, std::int64_t, std::int32_t);
INFINI_TRAIN_UNARY_KERNEL(Square, kElementGrain, float, double, std::int64_t, std::int32_t);
INFINI_TRAIN_UNARY_KERNEL(Exp, kFunctionGrain, float, double);
INFINI_TRAIN_UNARY_KERNEL(Log, kFunctionGrain, float, double);
INFINI_TRAIN_UNARY_KERNEL(Sqrt, kElementGrain, float, double);
INFINI_TRAIN_UNARY_KERNEL(Rsqrt, kElementGrain, float, double);
INFINI_TRAIN_UNARY_KERNEL(Reciprocal, kElementGrain, float, double);
INFINI_TRAIN_UNARY_KERNEL(Sin, kFunctionGrain, float, double);
INFINI_TRAIN_UNARY_KERNEL(Cos, kFunctionGrain, float, double);
INFINI_TRAIN_UNARY_KERNEL(Tanh, kFunctionGrain, float, double);
INFINI_TRAIN_UNARY_KERNEL(Sigmoid, kFunctionGrain, float, double);
INFINI_TRAIN_UNARY_KERNEL(LogicalNot, kElementGrain, bool);
#undef INFINI_TRAIN_UNARY_KERNEL

#define INFINI_TRAIN_GRADIENT_KERNEL(Name)                                             \
  static void Name##Kernel(const KernelContext&, Tensor& grad_x, const Tensor& grad_y, \
                           const Tensor& y) {                                          \
    static constexpr LoopTable kLoops = BinaryLoops<Name##Op, float, double>();        \
    RunElementwise(#Name, kLoops, grad_x, {grad_y, y});                                \
  }                                                                                    \
  REGISTER_KERNEL(kCPU, Name, &Name##Kernel)

INFINI_TRAIN_GRADIENT_KERNEL(TanhBackward);
INFINI_TRAIN_GRADIENT_KERNEL(SigmoidBackward);
#undef INFINI_TRAIN_GRADIENT_KERNEL

}  // namespace infini_train::cpu
