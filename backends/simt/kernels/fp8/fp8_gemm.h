#pragma once

#include "backends/simt/dialect.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/params.h"

namespace infini_train::simt {

/// The op Fp8Gemm on bfloat16 copies of the operands. A provider with a library for FP8 products
/// calls it for those that the library does not take.
void PortableFp8Gemm(const Context& context, Tensor& out, const Tensor& a, Fp8Format a_format,
                     const Tensor& a_scale, const Tensor& b, Fp8Format b_format,
                     const Tensor& b_scale, const Tensor& bias, bool accumulate);

}  // namespace infini_train::simt
