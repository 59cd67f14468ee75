#include "backends/simt/kernels/attention/attention_products.h"

#include <limits>
#include <numbers>

#include "backends/simt/group.h"
#include "backends/simt/kernels/attention/attention.h"
#include "backends/simt/kernels/attention/attention_products_backward.h"

namespace infini_train::simt {
namespace {

constexpr int kVector = kScoresVector;

template <typename S>
struct WeightsArguments {
  S* weights;      ///< out: not yet divided by their sum
  float* factors;  ///< out: what their sum divides by
  HeadRows<float> lse;
  const float* scores;
  ScoresChunk chunk;
  AttentionShape shape;
};

// Scores from column x of a row on, -infinity where the query does not see the key.
SIMT_DEVICE inline Vec<float, kVector> ScaledScores(const float* row, int x,
                                                    const VisibleColumns& visible, float scale) {
  Vec<float, kVector> values = {};
  if (x < visible.end) values = Load<kVector>(row + x);
  SIMT_UNROLL
  for (int i = 0; i < kVector; ++i)
    values[i] = visible.Has(x + i) ? values[i] * scale : -std::numeric_limits<float>::infinity();
  return values;
}

SIMT_DEVICE inline float Largest(float max, const Vec<float, kVector>& values) {
  SIMT_UNROLL
  for (int i = 0; i < kVector; ++i)
    max = Max(max, values[i]);
  return max;
}

// Writes the weights of scores and gives their sum, before dropout.
template <typename S>
SIMT_DEVICE inline float PutWeights(const WeightsArguments<S>& args, S* row,
                                    const ScoresChunk::Query& query, int x,
                                    const Vec<float, kVector>& scores, float shift) {
  float kept[kVector] = {1, 1, 1, 1};
  if (args.shape.dropout.enabled()) DropoutFactors(args.shape, args.chunk.block, query, x, kept);
  float sum = 0;
  Vec<S, kVector> weights;
  SIMT_UNROLL
  for (int i = 0; i < kVector; ++i) {
    const float weight = FastExp2(scores[i] - shift);
    sum += weight;
    weights[i] = FromCompute<S>(weight * kept[i]);
  }
  Store(row + x, weights);
  return sum;
}

template <typename S>
SIMT_KERNEL void WeightsKernel(WeightsArguments<S> args) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int kHeld = 8;  // vectors that a lane reads once: rows of 1024
  const QueryBlock& block = args.chunk.block;
  const int pitch = static_cast<int>(block.pitch);
  const int lane = GroupLane<kScoresGroup>() * kVector;
  const auto scale = static_cast<float>(args.shape.scale * std::numbers::log2e);
  const int rows = static_cast<int>(args.chunk.count * block.rows);
  for (auto row = static_cast<int>(GlobalThreadIndex() / kScoresGroup); row < rows;
       row += static_cast<int>(GlobalThreadCount() / kScoresGroup)) {
    const ScoresChunk::Query query = args.chunk.At(args.shape, row);
    const VisibleColumns visible(args.shape, block, query.t);
    const float* from = args.scores + row * block.pitch;
    S* to = args.weights + row * block.pitch;

    Vec<float, kVector> held[kHeld];
    SIMT_UNROLL
    for (int p = 0; p < kHeld; ++p)
      held[p] = ScaledScores(from, p * kScoresStep + lane, visible, scale);
    float max = -kInfinity;
    SIMT_UNROLL
    for (int p = 0; p < kHeld; ++p)
      max = Largest(max, held[p]);
    for (int x = kHeld * kScoresStep + lane; x < visible.end; x += kScoresStep)
      max = Largest(max, ScaledScores(from, x, visible, scale));
    max = ReduceGroup<kScoresGroup>(max, MaxOp());
    const float shift = max == -kInfinity ? 0.0f : max;

    float sum = 0;
    SIMT_UNROLL
    for (int p = 0; p < kHeld; ++p) {
      const int x = p * kScoresStep + lane;
      if (x < pitch) sum += PutWeights(args, to, query, x, held[p], shift);
    }
    for (int x = kHeld * kScoresStep + lane; x < pitch; x += kScoresStep)
      sum += PutWeights(args, to, query, x, ScaledScores(from, x, visible, scale), shift);
    sum = ReduceGroup<kScoresGroup>(sum, SumOp());
    if (lane == 0) {
      Store(args.factors + row, sum == 0 ? 0.0f : 1 / sum);
      Store(args.lse.At(query.b, query.h, query.t), max * std::numbers::ln2_v<float> + Log(sum));
    }
  }
}

// Rows of sums [N, R, D], times their factors, to where they belong.
template <typename S>
SIMT_KERNEL void OutKernel(HeadRows<S> out, const float* sums, const float* factors,
                           ScoresChunk all, AttentionShape shape, bool vector) {
  const std::int64_t rows = all.count * all.block.rows;
  const auto pieces = static_cast<int>((shape.head_size + kVector - 1) / kVector);
  for (std::int64_t i = GlobalThreadIndex(); i < rows * pieces; i += GlobalThreadCount()) {
    const auto row = static_cast<int>(i / pieces);
    const int x = static_cast<int>(i % pieces) * kVector;
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
      Launch(context, ScoresGeometry(chunk), WeightsKernel<S>,
             WeightsArguments<S>{weights.data<S>(),
                                 RowsOf(factors, chunk, 0, block.rows).template data<float>(),
                                 HeadRows<float>(lse), scores.data<float>(), chunk, shape});
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
