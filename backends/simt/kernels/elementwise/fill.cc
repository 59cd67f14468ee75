#include <cstdint>

#include "backends/simt/kernels/elementwise/convert.h"
#include "backends/simt/kernels/elementwise/elementwise.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

template <typename T>
struct ConstantOp {
  T value;
  SIMT_DEVICE T operator()() const { return value; }
};

void Fill(const Context& context, Tensor& out, Scalar value) {
  DispatchSize(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LaunchElementwise<T>(context, ConstantOp<T>{BitsOf<T>(value, out.dtype())}, out);
  });
}

/// In 64-bit integers or in double.
template <typename T>
SIMT_KERNEL void ArangeKernel(void* out, DataType dtype, std::int64_t count, T start, T step) {
  for (std::int64_t i = GlobalThreadIndex(); i < count; i += GlobalThreadCount())
    StoreNumber(out, dtype, i, start + static_cast<T>(i) * step);
}

void Arange(const Context& context, Tensor& out, Scalar start, Scalar step) {
  const std::int64_t count = out.numel();
  if (start.is_integer() && step.is_integer()) {
    Launch(context, Linear(count), &ArangeKernel<std::int64_t>, out.raw_data(), out.dtype(), count,
           start.To<std::int64_t>(), step.To<std::int64_t>());
  } else {
    Launch(context, Linear(count), &ArangeKernel<double>, out.raw_data(), out.dtype(), count,
           start.To<double>(), step.To<double>());
  }
}

}  // namespace

SIMT_REGISTER_KERNEL(Fill, &Fill);
SIMT_REGISTER_KERNEL(Arange, &Arange);

}  // namespace infini_train::simt
