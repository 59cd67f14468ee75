#include <cstdint>
#include <limits>

#include "backends/simt/dialect.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/fp8.h"

namespace infini_train::simt {
namespace {

SIMT_KERNEL void UpdateScalesKernel(float* scales, std::int64_t scale_stride, float* amax,
                                    float* history, const float* largest, std::int64_t count,
                                    std::int64_t length) {
  for (std::int64_t t = GlobalThreadIndex(); t < count; t += GlobalThreadCount()) {
    float next = Load(amax + t);
    if (!(next <= std::numeric_limits<float>::max())) next = 0.0f;
    Store(amax + t, 0.0f);
    float most = 0.0f;
    for (std::int64_t i = t * length; i < (t + 1) * length; ++i) {
      const float former = Load(history + i);
      Store(history + i, next);
      most = Max(most, next);
      next = former;
    }
    if (most == 0.0f) continue;
    const float scale = DelayedScale(Load(largest + t), most);
    Store(scales + scale_stride * t, 1.0f / scale);
    Store(scales + scale_stride * t + 1, scale);
  }
}

void Fp8UpdateScales(const Context& context, Tensor& scales, Tensor& amax, Tensor& history,
                     const Tensor& largest) {
  Launch(context, Linear(history.size(0), 1, 64), &UpdateScalesKernel, scales.data<float>(),
         scales.strides()[0], amax.data<float>(), history.data<float>(), largest.data<float>(),
         history.size(0), history.size(1));
}

}  // namespace

SIMT_REGISTER_KERNEL(Fp8UpdateScales, &Fp8UpdateScales);

}  // namespace infini_train::simt
