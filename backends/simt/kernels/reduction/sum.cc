#include <type_traits>

#include "backends/simt/kernels/reduction/reduce.h"
#include "backends/simt/types.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

void Sum(const Context& context, Tensor& out, const Tensor& x, const Dims& dims) {
  DispatchTypes(SignedTypes{}, "Sum", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<ComputeType<T>, float> && !std::is_same_v<T, float>) {
      // For the fused products, whose row sums may be wider than their operands.
      if (out.dtype() == DataType::kFloat32) {
        LaunchReduction<T>(context, PlanReduction(out, x, dims, true), SumReducer<T, float>());
        return;
      }
    }
    CheckDataType("Sum", out, x.dtype());
    LaunchReduction<T>(context, PlanReduction(out, x, dims, SumReducer<T>::kMayBeWide),
                       SumReducer<T>());
  });
}

void Mean(const Context& context, Tensor& out, const Tensor& x, const Dims& dims) {
  DispatchTypes(FloatingTypes{}, "Mean", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CheckDataType("Mean", out, x.dtype());
    const ReduceLoop loop = PlanReduction(out, x, dims, true);
    LaunchReduction<T>(context, loop, SumReducer<T>{static_cast<double>(loop.reduced.numel)});
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(Sum, &Sum);
SIMT_REGISTER_KERNEL(Mean, &Mean);

}  // namespace infini_train::simt
