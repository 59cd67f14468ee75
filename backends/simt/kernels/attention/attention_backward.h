#pragma once

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/attention/attention_heads.h"

namespace infini_train::simt {

/// The tensors of AttentionBackward.
template <typename S>
struct AttentionGradients {
  HeadRows<S> grad_q, grad_k, grad_v;
  HeadRows<const S> grad_out, out;
  HeadRows<const ComputeType<S>> lse;
  HeadRows<ComputeType<S>> delta;  ///< scratch: sum over a row of grad_out * out
  HeadRows<const S> q, k, v;
  AttentionShape shape;
  bool vector;  ///< rows may be read and written in vectors
};

/// grad_q, by one pass over the keys, and delta.
template <typename S>
void AttentionQueryGradients(const Context& context, const AttentionGradients<S>& args);

/// grad_k and grad_v, by one pass over the queries of all heads that share a key. Needs delta.
template <typename S>
void AttentionKeyGradients(const Context& context, const AttentionGradients<S>& args);

}  // namespace infini_train::simt
