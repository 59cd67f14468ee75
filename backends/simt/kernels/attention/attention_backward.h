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
  HeadRows<const ComputeType<S>> delta;  ///< sum over a row of grad_out * out
  HeadRows<const S> q, k, v;
  AttentionShape shape;
  bool vector;  ///< rows may be read and written in vectors
};

/// What the gradients are made from; makes `delta` and keeps it there.
template <typename S>
AttentionGradients<S> PrepareAttentionGradients(const Context& context, Tensor& grad_q,
                                                Tensor& grad_k, Tensor& grad_v,
                                                const Tensor& grad_out, const Tensor& out,
                                                const Tensor& lse, const Tensor& q, const Tensor& k,
                                                const Tensor& v, const AttentionShape& shape,
                                                Tensor& delta);

/// All gradients by one pass, where heads are small, the device has the shared memory and there are
/// blocks enough to keep it busy; otherwise does nothing and returns false. Needs delta, as the
/// others do.
template <typename S>
bool AttentionGradientsInOnePass(const Context& context, const AttentionGradients<S>& args);

/// grad_q, by one pass over the keys.
template <typename S>
void AttentionQueryGradients(const Context& context, const AttentionGradients<S>& args);

/// grad_k and grad_v, by one pass over the queries of all heads that share a key.
template <typename S>
void AttentionKeyGradients(const Context& context, const AttentionGradients<S>& args);

}  // namespace infini_train::simt
