#pragma once

#include "backends/simt/dialect.h"
#include "infini_train/core/tensor.h"

namespace infini_train::simt {

/// out [K, M] = the transposed codes [M, K] of FP8 numbers, both contiguous.
void TransposeCodes(const Context& context, const Tensor& out, const Tensor& codes);

}  // namespace infini_train::simt
