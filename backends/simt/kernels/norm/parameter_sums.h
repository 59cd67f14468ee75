#pragma once

#include "backends/simt/dialect.h"
#include "infini_train/core/tensor.h"

namespace infini_train::simt {

/// The second stage of parameter gradients: grad_weight [hidden] and grad_bias [hidden], either of
/// them optional, become the sums over the parts in partials (stat [parts, hidden] for the weight
/// only, or [parts, 2 * hidden] with the bias's half behind). In float64, in order.
void SumParameterParts(const Context& context, Tensor& grad_weight, Tensor& grad_bias,
                       const Tensor& partials);

}  // namespace infini_train::simt
