#include "backends/simt/kernels/attention/attention_backward.h"

#include "backends/simt/kernels/attention/attention.h"

namespace infini_train::simt {

void PortableAttentionBackward(const Context& context, Tensor& grad_q, Tensor& grad_k,
                               Tensor& grad_v, const Tensor& grad_out, const Tensor& out,
                               const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& cumulative_lengths, const AttentionParams& params) {
  const Tensor samples = AttentionSamples(context, cumulative_lengths, k.size(2));
  const AttentionShape shape(q, k, samples, params);
  const Tensor delta =
      Tensor::Empty({shape.batch, shape.heads, shape.queries}, lse.dtype(), context.device);
  DispatchFloating("AttentionBackward", q.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using C = ComputeType<S>;
    const AttentionGradients<S> args{
        HeadRows<S>(grad_q),
        HeadRows<S>(grad_k),
        HeadRows<S>(grad_v),
        HeadRows<const S>(grad_out),
        HeadRows<const S>(out),
        HeadRows<const C>(lse),
        HeadRows<C>(delta),
        HeadRows<const S>(q),
        HeadRows<const S>(k),
        HeadRows<const S>(v),
        shape,
        HaveAlignedRows(kMaxVectorWidth<C>, {&grad_q, &grad_k, &grad_v, &grad_out, &q, &k, &v})};
    // In this order: the first computes delta.
    AttentionQueryGradients(context, args);
    AttentionKeyGradients(context, args);
  });
}

}  // namespace infini_train::simt
