#pragma once

#include "backends/simt/dialect.h"
#include "infini_train/core/tensor.h"

namespace infini_train::simt {

/// What follows a product whose library has no epilogue for it: grad [M, N] is multiplied by the
/// slope of GELU's tanh approximation at pre [M, N], and column_sums [N] (optional; grad's dtype)
/// are the sums of its columns, by one pass. Contiguous; one floating dtype.
void MultiplyByGeluSlope(const Context& context, Tensor& grad, const Tensor& pre,
                         Tensor& column_sums);

}  // namespace infini_train::simt
