#include "backends/simt/kernels/attention/attention_products_backward.h"

#include <numbers>

#include "backends/simt/group.h"
#include "backends/simt/kernels/attention/attention.h"
#include "backends/simt/kernels/attention/attention_backward.h"
#include "backends/simt/kernels/attention/attention_products.h"

namespace infini_train::simt {
namespace {

template <typename S>
struct Arguments {
  S* weights;      ///< out: after dropout
  S* grad_scores;  ///< out
  const float* scores;
  const float* grad_weights;  ///< of the weights after dropout
  HeadRows<const float> lse, delta;
  ScoresChunk chunk;
  AttentionShape shape;
};

constexpr int kVector = kScoresVector;

// What a lane holds of a row.
struct Scores {
  Vec<float, kVector> scores, grad_weights;
};

template <typename S>
SIMT_KERNEL void GradScoresKernel(Arguments<S> args) {
  constexpr int kAtOnce = 4;
  const AttentionShape& shape = args.shape;
  const QueryBlock& block = args.chunk.block;
  const int pitch = static_cast<int>(block.pitch);
  const auto scale = static_cast<float>(shape.scale);
  const auto scale_log2 = static_cast<float>(shape.scale * std::numbers::log2e);
  const int rows = static_cast<int>(args.chunk.count * block.rows);
  for (auto row = static_cast<int>(GlobalThreadIndex() / kScoresGroup); row < rows;
       row += static_cast<int>(GlobalThreadCount() / kScoresGroup)) {
    const ScoresChunk::Query query = args.chunk.At(shape, row);
    const VisibleColumns visible(shape, block, query.t);
    const float lse = Load(args.lse.At(query.b, query.h, query.t)) * std::numbers::log2e_v<float>;
    const float delta = Load(args.delta.At(query.b, query.h, query.t));
    const std::int64_t begin = row * block.pitch;
    for (int first = GroupLane<kScoresGroup>() * kVector; first < pitch;
         first += kAtOnce * kScoresStep) {
      Scores held[kAtOnce] = {};
      SIMT_UNROLL
      for (int p = 0; p < kAtOnce; ++p) {
        const int x = first + p * kScoresStep;
        if (x >= visible.end) continue;
        held[p].scores = Load<kVector>(args.scores + begin + x);
        held[p].grad_weights = Load<kVector>(args.grad_weights + begin + x);
      }
      SIMT_UNROLL
      for (int p = 0; p < kAtOnce; ++p) {
        const int x = first + p * kScoresStep;
        if (x >= pitch) continue;
        float kept[kVector] = {1, 1, 1, 1};
        if (shape.dropout.enabled()) DropoutFactors(shape, block, query, x, kept);
        Vec<S, kVector> weights;
        Vec<S, kVector> grads;
        SIMT_UNROLL
        for (int i = 0; i < kVector; ++i) {
          const bool seen = visible.Has(x + i);
          const float weight = seen ? FastExp2(held[p].scores[i] * scale_log2 - lse) : 0.0f;
          const float grad = seen ? held[p].grad_weights[i] * kept[i] - delta : 0.0f;
          weights[i] = FromCompute<S>(weight * kept[i]);
          grads[i] = FromCompute<S>(weight * grad * scale);
        }
        Store(args.weights + begin + x, weights);
        Store(args.grad_scores + begin + x, grads);
      }
    }
  }
}

template <typename S>
void Backward(const Context& context, Tensor& grad_q, Tensor& grad_k, Tensor& grad_v,
              const AttentionGradients<S>& args, const Tensor& grad_out, const Tensor& q,
              const Tensor& k, const Tensor& v) {
  const AttentionShape& shape = args.shape;
  const std::int64_t heads = shape.batch * shape.kv_heads;
  const DataType dtype = q.dtype();
  const Tensor keys = Matrices(k, shape.kv_heads, 0, shape.keys);
  const Tensor values = Matrices(v, shape.kv_heads, 0, shape.keys);
  const auto zeros = [&] {
    Tensor sums =
        Tensor::Empty({heads, shape.keys, shape.head_size}, DataType::kFloat32, context.device);
    Call<op::Fill>(sums, 0);
    return sums;
  };
  const Tensor key_sums = zeros();
  const Tensor value_sums = zeros();
  ForEachQueryBlock(shape, [&](const QueryBlock& block) {
    const Tensor queries = Matrices(q, shape.kv_heads, block.first, block.count);
    const Tensor grad_outs = Matrices(grad_out, shape.kv_heads, block.first, block.count);
    const Tensor grad_queries = Tensor::Empty(queries.shape(), dtype, context.device);
    ForEachChunk(shape, block, [&](const ScoresChunk& chunk) {
      const Tensor scores = ScoresOf(chunk, DataType::kFloat32, context.device);
      const Tensor grad_weights = ScoresOf(chunk, DataType::kFloat32, context.device);
      const Tensor weights = ScoresOf(chunk, dtype, context.device);
      const Tensor grad_scores = ScoresOf(chunk, dtype, context.device);
      const Tensor chunk_queries = RowsOf(queries, chunk, 0, block.rows);
      const Tensor chunk_grads = RowsOf(grad_outs, chunk, 0, block.rows);
      const Tensor chunk_keys = RowsOf(keys, chunk, block.first_key, block.keys);
      Multiply(scores, chunk_queries, Transposed(chunk_keys));
      Multiply(grad_weights, chunk_grads,
               Transposed(RowsOf(values, chunk, block.first_key, block.keys)));
      Launch(context, ScoresGeometry(chunk), GradScoresKernel<S>,
             Arguments<S>{weights.data<S>(), grad_scores.data<S>(), scores.data<float>(),
                          grad_weights.data<float>(), args.lse, args.delta, chunk, shape});
      Multiply(RowsOf(value_sums, chunk, block.first_key, block.keys), Transposed(weights),
               chunk_grads, true);
      Multiply(RowsOf(key_sums, chunk, block.first_key, block.keys), Transposed(grad_scores),
               chunk_queries, true);
      Multiply(RowsOf(grad_queries, chunk, 0, block.rows), grad_scores, chunk_keys);
    });
    PutMatrices(grad_q, shape.kv_heads, block.first, block.count, grad_queries);
  });
  PutMatrices(grad_k, shape.kv_heads, 0, shape.keys, key_sums);
  PutMatrices(grad_v, shape.kv_heads, 0, shape.keys, value_sums);
}

}  // namespace

void AttentionBackwardByProducts(const Context& context, Tensor& grad_q, Tensor& grad_k,
                                 Tensor& grad_v, const Tensor& grad_out, const Tensor& out,
                                 const Tensor& lse, const Tensor& q, const Tensor& k,
                                 const Tensor& v, const Tensor& cumulative_lengths,
                                 const AttentionParams& params) {
  if (!TakesAttentionByProducts(q, k, cumulative_lengths)) {
    PortableAttentionBackward(context, grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v,
                              cumulative_lengths, params);
    return;
  }
  const auto run = [&]<typename S>() {
    Tensor delta;
    const AttentionGradients<S> args =
        PrepareAttentionGradients<S>(context, grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v,
                                     AttentionShape(q, k, Tensor(), params), delta);
    Backward<S>(context, grad_q, grad_k, grad_v, args, grad_out, q, k, v);
  };
  if (q.dtype() == DataType::kBFloat16) {
    run.template operator()<BFloat16>();
  } else {
    run.template operator()<Float16>();
  }
}

}  // namespace infini_train::simt
