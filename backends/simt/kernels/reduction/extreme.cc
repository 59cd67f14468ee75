#include <string>
#include <string_view>

#include "backends/simt/kernels/reduction/reduce.h"
#include "backends/simt/types.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

/// Throws Error unless each result has an element to be.
ReduceLoop PlanExtreme(std::string_view op, const Tensor& out, const Tensor& x, const Dims& dims) {
  // Comparing takes longer than reading: a single long row is worth many blocks.
  const ReduceLoop loop = PlanReduction(out, x, dims, /*may_be_wide=*/false, /*min_turns=*/2);
  if (loop.reduced.numel == 0 && loop.kept.numel > 0) {
    throw Error(std::string(op) + " expected elements in dimensions " + dims.ToString() +
                ", got shape " + x.shape().ToString());
  }
  return loop;
}

void Extreme(const Context& context, std::string_view op, const Tensor& out, const Tensor& x,
             const Dims& dims, bool smallest) {
  DispatchTypes(AllTypes{}, op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CheckDataType(op, out, x.dtype());
    LaunchReduction<T>(context, PlanExtreme(op, out, x, dims), ExtremeReducer<T>{smallest});
  });
}

void Position(const Context& context, std::string_view op, const Tensor& out, const Tensor& x,
              int dim, bool smallest) {
  DispatchTypes(AllTypes{}, op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CheckDataType(op, out, DataType::kInt64);
    LaunchReduction<T>(context, PlanExtreme(op, out, x, Dims{dim}), PositionReducer<T>{smallest});
  });
}

void MaxKernel(const Context& context, Tensor& out, const Tensor& x, const Dims& dims) {
  Extreme(context, "Max", out, x, dims, false);
}
void MinKernel(const Context& context, Tensor& out, const Tensor& x, const Dims& dims) {
  Extreme(context, "Min", out, x, dims, true);
}
void ArgMaxKernel(const Context& context, Tensor& out, const Tensor& x, int dim) {
  Position(context, "ArgMax", out, x, dim, false);
}
void ArgMinKernel(const Context& context, Tensor& out, const Tensor& x, int dim) {
  Position(context, "ArgMin", out, x, dim, true);
}

}  // namespace

SIMT_REGISTER_KERNEL(Max, &MaxKernel);
SIMT_REGISTER_KERNEL(Min, &MinKernel);
SIMT_REGISTER_KERNEL(ArgMax, &ArgMaxKernel);
SIMT_REGISTER_KERNEL(ArgMin, &ArgMinKernel);

}  // namespace infini_train::simt
