#include "backends/simt/kernels/attention/attention_backward.h"

#include "backends/simt/group.h"
#include "backends/simt/kernels/attention/attention.h"
#include "backends/simt/strided.h"

namespace infini_train::simt {
namespace {

constexpr int kBlock = 256;
constexpr int kGroup = 16;

/// Rows of grad_out and out, and what delta has of each.
template <typename S>
struct DeltaRows {
  StridedIndex<3> rows;
  ComputeType<S>* delta;
  const S* grad_out;
  const S* out;
  std::int64_t size;
  bool vector;
};

// delta of a query by the lanes of a group.
template <typename S>
SIMT_KERNEL void DeltaKernel(DeltaRows<S> args) {
  using C = ComputeType<S>;
  constexpr int kVector = kMaxVectorWidth<C>;
  for (std::int64_t row = GlobalThreadIndex() / kGroup; row < args.rows.numel;
       row += GlobalThreadCount() / kGroup) {
    std::int64_t offsets[3];
    args.rows.Locate(row, offsets);
    const S* grad_out = args.grad_out + offsets[1];
    const S* out = args.out + offsets[2];
    C sum = 0;
    if (args.vector) {
      for (std::int64_t x = GroupLane<kGroup>() * kVector; x < args.size; x += kGroup * kVector) {
        const Vec<S, kVector> grads = Load<kVector>(grad_out + x);
        const Vec<S, kVector> outs = Load<kVector>(out + x);
        SIMT_UNROLL
        for (int v = 0; v < kVector; ++v)
          sum += ToCompute(grads[v]) * ToCompute(outs[v]);
      }
    } else {
      for (std::int64_t x = GroupLane<kGroup>(); x < args.size; x += kGroup)
        sum += ToCompute(Load(grad_out + x)) * ToCompute(Load(out + x));
    }
    sum = ReduceGroup<kGroup>(sum, SumOp());
    if (GroupLane<kGroup>() == 0) Store(args.delta + offsets[0], sum);
  }
}

/// Strides of all dimensions but the last.
Dims RowStrides(const Tensor& x) {
  return Without(x.strides(), x.rank() - 1);
}

}  // namespace

template <typename S>
AttentionGradients<S> PrepareAttentionGradients(const Context& context, Tensor& grad_q,
                                                Tensor& grad_k, Tensor& grad_v,
                                                const Tensor& grad_out, const Tensor& out,
                                                const Tensor& lse, const Tensor& q, const Tensor& k,
                                                const Tensor& v, const AttentionShape& shape,
                                                Tensor& delta) {
  using C = ComputeType<S>;
  delta = Tensor::Empty({shape.batch, shape.heads, shape.queries}, lse.dtype(), context.device);
  const AttentionGradients<S> args{
      HeadRows<S>(grad_q),
      HeadRows<S>(grad_k),
      HeadRows<S>(grad_v),
      HeadRows<const S>(grad_out),
      HeadRows<const S>(out),
      HeadRows<const C>(lse),
      HeadRows<const C>(delta),
      HeadRows<const S>(q),
      HeadRows<const S>(k),
      HeadRows<const S>(v),
      shape,
      HaveAlignedRows(kMaxVectorWidth<C>,
                      {&grad_q, &grad_k, &grad_v, &grad_out, &out, &q, &k, &v})};
  const Dims of_grad_out = RowStrides(grad_out), of_out = RowStrides(out);
  const MergedDims rows(delta.shape(), {&delta.strides(), &of_grad_out, &of_out});
  Launch(context, Linear(delta.numel() * kGroup, 1, kBlock), DeltaKernel<S>,
         DeltaRows<S>{StridedIndex<3>(rows), delta.data<C>(), grad_out.data<S>(), out.data<S>(),
                      shape.head_size, args.vector});
  return args;
}

template AttentionGradients<Float16> PrepareAttentionGradients(
    const Context&, Tensor&, Tensor&, Tensor&, const Tensor&, const Tensor&, const Tensor&,
    const Tensor&, const Tensor&, const Tensor&, const AttentionShape&, Tensor&);
template AttentionGradients<BFloat16> PrepareAttentionGradients(
    const Context&, Tensor&, Tensor&, Tensor&, const Tensor&, const Tensor&, const Tensor&,
    const Tensor&, const Tensor&, const Tensor&, const AttentionShape&, Tensor&);

void PortableAttentionBackward(const Context& context, Tensor& grad_q, Tensor& grad_k,
                               Tensor& grad_v, const Tensor& grad_out, const Tensor& out,
                               const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& cumulative_lengths, const AttentionParams& params) {
  const Tensor samples = AttentionSamples(context, cumulative_lengths, k.size(2));
  const AttentionShape shape(q, k, samples, params);
  DispatchFloating("AttentionBackward", q.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    Tensor delta;
    const AttentionGradients<S> args = PrepareAttentionGradients<S>(
        context, grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v, shape, delta);
    if (AttentionGradientsInOnePass(context, args)) return;
    AttentionQueryGradients(context, args);
    AttentionKeyGradients(context, args);
  });
}

}  // namespace infini_train::simt
