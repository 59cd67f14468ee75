#pragma once

#include "backends/simt/dialect.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/params.h"

namespace infini_train::simt {

/// The op AttentionBackward by products of the op Gemm where they are the better way, and by
/// PortableAttentionBackward elsewhere.
void AttentionBackwardByProducts(const Context& context, Tensor& grad_q, Tensor& grad_k,
                                 Tensor& grad_v, const Tensor& grad_out, const Tensor& out,
                                 const Tensor& lse, const Tensor& q, const Tensor& k,
                                 const Tensor& v, const Tensor& cumulative_lengths,
                                 const AttentionParams& params);

}  // namespace infini_train::simt
