#include "backends/simt/kernels/attention/attention_products.h"

#include <limits>
#include <numbers>

#include "backends/simt/group.h"
#include "backends/simt/kernels/attention/attention.h"
#include "backends/simt/kernels/attention/attention_products_backward.h"

namespace infini_train::simt {
namespace {

constexpr int kVector = kMaxVectorWidth<float>;
constexpr int kStep = kScoresGroup * kVector;

// From scores to weights that are not yet divided by their sum.
template <typename S>
SIMT_KERNEL void WeightsKernel(S* weights, float* factors, HeadRows<float> lse, const float* scores,
                               ScoresChunk chunk, AttentionShape shape) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const QueryBlock& block = chunk.block;
  const auto scale = static_cast<float>(shape.scale * std::numbers::log2e);
  const std::int64_t lane = GroupLane<kScoresGroup>() * kVector;
  const std::int64_t rows = chunk.count * block.rows;
  for (std::int64_t row = GlobalThreadIndex() / kScoresGroup; row < rows;
       row += GlobalThreadCount() / kScoresGroup) {
    const ScoresChunk::Query query = chunk.At(shape, row);
    const HeadRange keys = shape.VisibleKeys(query.t);
    const HeadRange visible{keys.begin - block.first_key, keys.end - block.first_key};
    const float* from = scores + row * block.pitch;
    S* to = weights + row * block.pitch;

    float max = -kInfinity;
    for (std::int64_t x = lane; x < visible.end; x += kStep) {
      const Vec<float, kVector> values = Load<kVector>(from + x);
      SIMT_UNROLL
      for (int i = 0; i < kVector; ++i) {
        if (x + i >= visible.begin && x + i < visible.end) max = Max(max, values[i] * scale);
      }
    }
    max = ReduceGroup<kScoresGroup>(max, MaxOp());
    const float shift = max == -kInfinity ? 0.0f : max;

    float sum = 0;
    for (std::int64_t x = lane; x < block.pitch; x += kStep) {
      Vec<S, kVector> results;
      if (x < visible.end) {
        const Vec<float, kVector> values = Load<kVector>(from + x);
        float kept[kVector] = {1, 1, 1, 1};
        if (shape.dropout.enabled()) {
          const std::int64_t head = query.b * shape.heads + query.h;
          shape.dropout.Factors((head * shape.queries + query.t) * shape.keys + block.first_key + x,
                                kept);
        }
        SIMT_UNROLL
        for (int i = 0; i < kVector; ++i) {
          const bool seen = x + i >= visible.begin && x + i < visible.end;
          const float weight = seen ? FastExp2(values[i] * scale - shift) : 0.0f;
          sum += weight;
          results[i] = FromCompute<S>(weight * kept[i]);
        }
      } else {
        SIMT_UNROLL
        for (int i = 0; i < kVector; ++i)
          results[i] = FromCompute<S>(0.0f);
      }
      Store(to + x, results);
    }
    sum = ReduceGroup<kScoresGroup>(sum, SumOp());
    if (lane == 0) {
      Store(factors + row, sum == 0 ? 0.0f : 1 / sum);
      Store(lse.At(query.b, query.h, query.t), max * std::numbers::ln2_v<float> + Log(sum));
    }
  }
}

// Rows of sums [N, R, D], times their factors, to where they belong.
template <typename S>
SIMT_KERNEL void OutKernel(HeadRows<S> out, const float* sums, const float* factors,
                           ScoresChunk all, AttentionShape shape, bool vector) {
  const std::int64_t rows = all.count * all.block.rows;
  const std::int64_t pieces = (shape.head_size + kVector - 1) / kVector;
  for (std::int64_t i = GlobalThreadIndex(); i < rows * pieces; i += GlobalThreadCount()) {
    const std::int64_t row = i / pieces;
    const std::int64_t x = i % pieces * kVector;
    const ScoresChunk::Query query = all.At(shape, row);
    const float factor = Load(factors + row);
    const float* from = sums + row * shape.head_size + x;
    S* to = out.At(query.b, query.h, query.t) + x;
    // A factor of 0 is that of no weights: their sum is 0, whatever the values are.
    const auto result = [&](float value) {
      return FromCompute<S>(factor == 0 ? 0.0f : value * factor);
    };
    if (vector) {
      const Vec<float, kVector> values = Load<kVector>(from);
      Vec<S, kVector> results;
      SIMT_UNROLL
      for (int v = 0; v < kVector; ++v)
        results[v] = result(values[v]);
      Store(to, results);
    } else {
      for (int v = 0; v < kVector && x + v < shape.head_size; ++v)
        Store(to + v, result(Load(from + v)));
    }
  }
}

template <typename S>
void Forward(const Context& context, Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k,
             const Tensor& v, const AttentionShape& shape) {
  const std::int64_t heads = shape.batch * shape.kv_heads;
  const Tensor keys = Matrices(k, shape.kv_heads, 0, shape.keys);
  const Tensor values = Matrices(v, shape.kv_heads, 0, shape.keys);
  ForEachQueryBlock(shape, [&](const QueryBlock& block) {
    const Tensor queries = Matrices(q, shape.kv_heads, block.first, block.count);
    const Tensor sums =
        Tensor::Empty({heads, block.rows, shape.head_size}, DataType::kFloat32, context.device);
    const Tensor factors =
        Tensor::Empty({heads, block.rows, 1}, DataType::kFloat32, context.device);
    ForEachChunk(shape, block, [&](const ScoresChunk& chunk) {
      const Tensor scores = ScoresOf(chunk, DataType::kFloat32, context.device);
      const Tensor weights = ScoresOf(chunk, q.dtype(), context.device);
      Multiply(scores, RowsOf(queries, chunk, 0, block.rows),
               Transposed(RowsOf(keys, chunk, block.first_key, block.keys)));
      Launch(context, ScoresGeometry(chunk), WeightsKernel<S>, weights.data<S>(),
             RowsOf(factors, chunk, 0, block.rows).template data<float>(), HeadRows<float>(lse),
             scores.data<float>(), chunk, shape);
      Multiply(RowsOf(sums, chunk, 0, block.rows), weights,
               RowsOf(values, chunk, block.first_key, block.keys));
    });
    const bool vector = HaveAlignedRows(kVector, {&out});
    Launch(context, Linear(sums.numel(), kVector), OutKernel<S>, HeadRows<S>(out),
           sums.data<float>(), factors.data<float>(), ScoresChunk{0, heads, block}, shape, vector);
  });
}

void AttentionByProducts(const Context& context, Tensor& out, Tensor& lse, const Tensor& q,
                         const Tensor& k, const Tensor& v, const Tensor& cumulative_lengths,
                         const AttentionParams& params) {
  if (!TakesAttentionByProducts(q, k, cumulative_lengths)) {
    PortableAttention(context, out, lse, q, k, v, cumulative_lengths, params);
    return;
  }
  const AttentionShape shape(q, k, Tensor(), params);
  if (q.dtype() == DataType::kBFloat16) {
    Forward<BFloat16>(context, out, lse, q, k, v, shape);
  } else {
    Forward<Float16>(context, out, lse, q, k, v, shape);
  }
}

}  // namespace

SIMT_REGISTER_KERNEL(Attention, &AttentionByProducts);
SIMT_REGISTER_KERNEL(AttentionBackward, &AttentionBackwardByProducts);

}  // namespace infini_train::simt
