#pragma once

#include "backends/simt/dialect.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/params.h"

namespace infini_train::simt {

/// The ops Attention and AttentionBackward for all that they allow. A provider with a library for
/// attention calls them for what the library does not take.
void PortableAttention(const Context& context, Tensor& out, Tensor& lse, const Tensor& q,
                       const Tensor& k, const Tensor& v, const Tensor& cumulative_lengths,
                       const AttentionParams& params);
void PortableAttentionBackward(const Context& context, Tensor& grad_q, Tensor& grad_k,
                               Tensor& grad_v, const Tensor& grad_out, const Tensor& out,
                               const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& cumulative_lengths, const AttentionParams& params);

}  // namespace infini_train::simt
