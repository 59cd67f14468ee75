#pragma once

#include <cstdint>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/params.h"

/// FP8 ops as compositions of other ops, which define them: what their kernels do on a device, or
/// for operands, that have no faster way. The same on every device.
namespace infini_train {

/// A scale as the FP8 ops take it, of a power of two.
INFINI_TRAIN_API Tensor MakeFp8Scale(float scale, Device device);

/// The ops Fp8QuantizeNorm and Fp8LinearCrossEntropy.
INFINI_TRAIN_API void ComposeFp8QuantizeNorm(Tensor& out, Tensor& transposed, Tensor& amax,
                                             Tensor& sum, Tensor& mean, Tensor& rstd,
                                             const Tensor& x, const Tensor& residual,
                                             const Tensor& weight, const Tensor& bias,
                                             const Tensor& scale, Fp8Format format, double eps);
INFINI_TRAIN_API void ComposeFp8LinearCrossEntropy(
    Tensor& loss, Tensor& grad_hidden, Tensor& grad_weight, Tensor& amax, const Tensor& hidden,
    const Tensor& weight, const Tensor& targets, const Tensor& hidden_scale,
    const Tensor& weight_codes, const Tensor& weight_scale, std::int64_t ignore_index,
    double scale);

}  // namespace infini_train
