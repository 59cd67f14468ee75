#include <limits>

#include "backends/simt/kernels/elementwise/arithmetic.h"
#include "backends/simt/kernels/elementwise/elementwise.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

#define INFINI_TRAIN_SCALAR(Name, Op, types)                                              \
  void Name##Kernel(const Context& context, Tensor& out, const Tensor& x, Scalar value) { \
    RunWithNumber<Op>(context, #Name, types{}, out, x, value);                            \
  }                                                                                       \
  SIMT_REGISTER_KERNEL(Name, &Name##Kernel)

INFINI_TRAIN_SCALAR(AddScalar, AddOp, ArithmeticTypes);
INFINI_TRAIN_SCALAR(MulScalar, MulOp, ArithmeticTypes);
INFINI_TRAIN_SCALAR(RsubScalar, ReverseSubOp, ArithmeticTypes);
INFINI_TRAIN_SCALAR(DivScalar, DivOp, FloatingTypes);
INFINI_TRAIN_SCALAR(RdivScalar, ReverseDivOp, FloatingTypes);

// Powers that are cheaper and more exact than Pow, with its special values.
struct PowTwoOp {
  template <typename T>
  SIMT_DEVICE T operator()(T x) const {
    return x * x;
  }
};
struct PowThreeOp {
  template <typename T>
  SIMT_DEVICE T operator()(T x) const {
    return x * x * x;
  }
};
struct PowHalfOp {
  template <typename T>
  SIMT_DEVICE T operator()(T x) const {
    // (-0)^0.5 is 0 and (-inf)^0.5 is inf, unlike their square roots.
    const T root = Sqrt(x + T(0));
    const T magnitude = Abs(x);
    return magnitude > std::numeric_limits<T>::max() ? magnitude : root;
  }
};

void PowScalar(const Context& context, Tensor& out, const Tensor& x, Scalar value) {
  constexpr FloatingTypes kTypes;
  const auto exponent = value.To<double>();
  if (exponent == 2) return RunElementwise(context, "PowScalar", kTypes, PowTwoOp(), out, x);
  if (exponent == 3) return RunElementwise(context, "PowScalar", kTypes, PowThreeOp(), out, x);
  if (exponent == -1) return RunWithNumber<ReverseDivOp>(context, "PowScalar", kTypes, out, x, 1);
  if (exponent == 0.5) return RunElementwise(context, "PowScalar", kTypes, PowHalfOp(), out, x);
  RunWithNumber<PowOp>(context, "PowScalar", kTypes, out, x, value);
}

template <typename C>
struct ClampOp {
  C low;
  C high;
  SIMT_DEVICE C operator()(C x) const {
    const C raised = x < low ? low : x;
    return raised > high ? high : raised;
  }
};

void Clamp(const Context& context, Tensor& out, const Tensor& x, Scalar low, Scalar high) {
  DispatchTypes(ArithmeticTypes{}, "Clamp", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    CheckDataType("Clamp", x, out.dtype());
    LaunchElementwise<T, T>(context, ClampOp<C>{low.To<C>(), high.To<C>()}, out, x);
  });
}

template <typename C>
struct AddScaledOp {
  C factor;
  SIMT_DEVICE C operator()(C out, C x) const { return AddOp()(out, MulOp()(x, factor)); }
};

void AddScaled(const Context& context, Tensor& out, const Tensor& x, Scalar factor) {
  DispatchTypes(ArithmeticTypes{}, "AddScaled", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    CheckDataType("AddScaled", x, out.dtype());
    LaunchElementwise<T, T, T>(context, AddScaledOp<C>{factor.To<C>()}, out, out, x);
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(PowScalar, &PowScalar);
SIMT_REGISTER_KERNEL(Clamp, &Clamp);
SIMT_REGISTER_KERNEL(AddScaled, &AddScaled);

}  // namespace infini_train::simt
