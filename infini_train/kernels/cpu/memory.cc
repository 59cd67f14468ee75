#include <cstddef>
#include <cstdint>

#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

void Arange(const KernelContext&, Tensor& out, Scalar start, Scalar step) {
  DispatchAll("Arange", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* data = out.data<T>();
    const bool integer = start.is_integer() && step.is_integer();
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      data[i] =
          integer ? Scalar(start.To<std::int64_t>() + i * step.To<std::int64_t>()).To<T>()
                  : Scalar(start.To<double>() + static_cast<double>(i) * step.To<double>()).To<T>();
    }
  });
}

}  // namespace

REGISTER_KERNEL(kCPU, Arange, &Arange);

}  // namespace infini_train::cpu
