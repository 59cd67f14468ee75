#include "backends/simt/kernels/attention/attention_products_backward.h"

#include <algorithm>
#include <numbers>
#include <type_traits>

#include "backends/simt/kernels/attention/attention.h"
#include "backends/simt/kernels/attention/attention_backward.h"
#include "backends/simt/kernels/attention/attention_products.h"
#include "backends/simt/kernels/attention/attention_products_memory.h"
#include "backends/simt/strided.h"

namespace infini_train::simt {
namespace {

/// Columns of a lane, whose block has `pitch / kVector` lanes for a row and as many rows as fit.
constexpr int kVector = kMaxVectorWidth<BFloat16>;
constexpr int kBlock = 256;
/// Rows that a lane reads before it writes the first, and the times it does so.
constexpr int kAtOnce = 2;
constexpr int kTimes = 4;

/// Gradients of weights: rounded like the gradients of scores that come from them, unless the type
/// has so few exponents that a larger number in between would be infinite.
template <typename S>
using GradWeight = std::conditional_t<std::is_same_v<S, BFloat16>, S, float>;

template <typename S>
struct Arguments {
  float* scores;                ///< the weights after dropout take the place of each row
  GradWeight<S>* grad_weights;  ///< of those; the gradients of scores take the place of each row
  HeadRows<const float> lse, delta;
  ScoresChunk chunk;
  AttentionShape shape;
};

/// kVector neighbours, as they are in memory.
template <typename T>
struct Columns {
  static constexpr int kWidth = kMaxVectorWidth<T> < kVector ? kMaxVectorWidth<T> : kVector;

  SIMT_DEVICE static Columns Of(const T* from) {
    Columns columns;
    SIMT_UNROLL
    for (int i = 0; i < kVector / kWidth; ++i)
      columns.parts[i] = Load<kWidth>(from + i * kWidth);
    return columns;
  }
  SIMT_DEVICE float At(int i) const { return ToCompute(parts[i / kWidth][i % kWidth]); }

  Vec<T, kWidth> parts[kVector / kWidth] = {};
};

/// What a lane holds of a row.
template <typename G>
struct Held {
  Columns<float> scores;
  Columns<G> grad_weights;
  float lse = 0, delta = 0;
};

// The weights and gradients in columns from x on, some of which the query sees.
template <typename S, bool kDropout>
SIMT_DEVICE inline void ToGradients(const Arguments<S>& args, const ScoresChunk::Query& query,
                                    const VisibleColumns& visible, int x,
                                    const Held<GradWeight<S>>& held, Vec<S, kVector>& weights,
                                    Vec<S, kVector>& grads) {
  const auto scale = static_cast<float>(args.shape.scale);
  const float power_scale = scale * std::numbers::log2e_v<float>;
  const float lse = held.lse * std::numbers::log2e_v<float>;
  float factors[kVector];
  if constexpr (kDropout) DropoutFactors(args.shape, args.chunk, query, x, factors);
  const bool all = visible.HasAll(x, kVector);
  SIMT_UNROLL
  for (int i = 0; i < kVector; ++i) {
    float weight = FastExp2(held.scores.At(i) * power_scale - lse);
    float grad = held.grad_weights.At(i);
    if constexpr (kDropout) grad *= factors[i];
    grad = (grad - held.delta) * scale;
    if (!all && !visible.Has(x + i)) weight = grad = 0;
    grads[i] = FromCompute<S>(weight * grad);
    if constexpr (kDropout) weight *= factors[i];
    weights[i] = FromCompute<S>(weight);
  }
}

template <typename S, bool kDropout>
SIMT_KERNEL void GradScoresKernel(Arguments<S> args) {
  const AttentionShape& shape = args.shape;
  const ScoresBlock& block = args.chunk.block;
  const int lanes = static_cast<int>(block.pitch) / kVector;
  const int rows_at_once = BlockSize() / lanes;
  const int x = ThreadIndex() % lanes * kVector;
  const int lane_row = ThreadIndex() / lanes;
  // Lanes that are left over have no rows.
  const std::int64_t rows = lane_row < rows_at_once ? block.rows : 0;
  const auto chunk_head = static_cast<int>(BlockIndexY());
  const ScoresChunk::Head head = args.chunk.HeadAt(shape, chunk_head);
  const std::int64_t matrix = chunk_head * block.rows * block.pitch;
  const int step = rows_at_once * kAtOnce;
  for (std::int64_t first = BlockIndex() * step; first < block.rows; first += GridSize() * step) {
    Held<GradWeight<S>> held[kAtOnce];
    SIMT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t row = first + i * rows_at_once + lane_row;
      if (row >= rows) continue;
      const ScoresChunk::Query query = args.chunk.QueryAt(shape, head, static_cast<int>(row));
      if (!VisibleColumns(args.chunk, query).HasAny(x, kVector)) continue;
      const std::int64_t at = matrix + row * block.pitch + x;
      held[i].scores = Columns<float>::Of(args.scores + at);
      held[i].grad_weights = Columns<GradWeight<S>>::Of(args.grad_weights + at);
      held[i].lse = Load(args.lse.At(query.b, query.h, query.t));
      held[i].delta = Load(args.delta.At(query.b, query.h, query.t));
    }
    // Rows are written behind what all lanes have read of them.
    SyncBlock();
    SIMT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t row = first + i * rows_at_once + lane_row;
      if (row >= rows) continue;
      const ScoresChunk::Query query = args.chunk.QueryAt(shape, head, static_cast<int>(row));
      const VisibleColumns visible(args.chunk, query);
      Vec<S, kVector> weights = {}, grads = {};
      if (visible.HasAny(x, kVector))
        ToGradients<S, kDropout>(args, query, visible, x, held[i], weights, grads);
      const std::int64_t at = matrix + row * block.pitch;
      Store(reinterpret_cast<S*>(args.scores + at) + x, weights);
      Store(reinterpret_cast<S*>(args.grad_weights + at) + x, grads);
    }
  }
}

template <typename S>
void PutGradScoresOf(const Context& context, const Arguments<S>& args) {
  const ScoresBlock& block = args.chunk.block;
  const std::int64_t rows_of_a_block = kBlock / (block.pitch / kVector) * kAtOnce * kTimes;
  const std::int64_t blocks = (block.rows + rows_of_a_block - 1) / rows_of_a_block;
  const Geometry geometry{
      .grid_x = std::min(blocks, kMaxGridX), .grid_y = args.chunk.heads.count, .block = kBlock};
  if (args.shape.dropout.threshold > 0) {
    Launch(context, geometry, GradScoresKernel<S, true>, args);
  } else {
    Launch(context, geometry, GradScoresKernel<S, false>, args);
  }
}

template <typename S>
void Backward(const Context& context, Tensor& grad_q, Tensor& grad_k, Tensor& grad_v,
              const AttentionGradients<S>& args, const Tensor& grad_out, const Tensor& q,
              const Tensor& k, const Tensor& v) {
  const AttentionShape& attention = args.shape;
  const ProductsShape shape = ProductsShapeOf(attention);
  const DataType dtype = q.dtype();
  const auto blocks = BlocksOfKeys(shape);
  const HeadLines lines =
      LinesFor(shape, blocks.front().scores(), {&grad_q, &grad_k, &grad_v, &grad_out, &q, &k, &v});
  const auto queries = HeadMatrices::Read(q, shape, lines);
  const auto keys = HeadMatrices::Read(k, shape, lines);
  const auto values = HeadMatrices::Read(v, shape, lines);
  const auto grad_outs = HeadMatrices::Read(grad_out, shape, lines);
  const auto grad_keys = HeadMatrices::Write(grad_k, shape, lines);
  const auto grad_values = HeadMatrices::Write(grad_v, shape, lines);
  const int branch_count = BranchesFor(lines);
  const auto score_memory =
      MakeScores(lines, blocks, branch_count, DataType::kFloat32, context.device);
  const auto grad_memory =
      MakeScores(lines, blocks, branch_count, DataTypeOf<GradWeight<S>>(), context.device);
  // Each block of keys adds to the gradients of its queries, in float32.
  const Tensor all_sums =
      Tensor::Empty({branch_count, lines.length, shape.queries * shape.group, attention.head_size},
                    DataType::kFloat32, context.device);
  const bool first_has_all = blocks.front().queries == shape.queries;

  const auto of_line = [&](const Context& context, std::int64_t line, int branch) {
    const Tensor &memory = score_memory[branch], &grads = grad_memory[branch];
    Tensor sums = all_sums.AsStrided(Without(all_sums.shape(), 0), Without(all_sums.strides(), 0),
                                     branch * all_sums.strides()[0]);
    if (!first_has_all) Call<op::Fill>(sums, 0);
    for (const ScoresBlock& block : blocks) {
      if (block.rows == 0) {
        const HeadChunk all{line * lines.line_step, lines.step, lines.length, 0};
        for (const HeadMatrices* unseen : {&grad_keys, &grad_values}) {
          Tensor matrices = unseen->Of(all, block.first_key, block.keys);
          Call<op::Fill>(matrices, 0);
        }
        continue;
      }
      const bool accumulate = !first_has_all || block.first_key > 0;
      const std::int64_t first_row = block.first_query * shape.group;
      for (const HeadChunk& heads : ChunksOf(lines, line, block, LimitsOf(branch_count))) {
        const Tensor block_queries = queries.Of(heads, first_row, block.rows);
        const Tensor block_grads = grad_outs.Of(heads, first_row, block.rows);
        const Tensor block_keys = keys.Of(heads, block.first_key, block.keys);
        const Tensor block_values = values.Of(heads, block.first_key, block.keys);
        Multiply(ScoresOf(memory, heads, block, memory.dtype()), block_queries,
                 Transposed(block_keys));
        Multiply(ScoresOf(grads, heads, block, grads.dtype()), block_grads,
                 Transposed(block_values));
        PutGradScoresOf<S>(context, {memory.data<float>(), grads.data<GradWeight<S>>(), args.lse,
                                     args.delta, ScoresChunk(attention, heads, block), attention});
        const Tensor weights = ScoresOf(memory, heads, block, dtype);
        const Tensor grad_scores = ScoresOf(grads, heads, block, dtype);
        Multiply(grad_values.Of(heads, block.first_key, block.keys), Transposed(weights),
                 block_grads);
        Multiply(grad_keys.Of(heads, block.first_key, block.keys), Transposed(grad_scores),
                 block_queries);
        const Tensor block_sums = sums.AsStrided(
            {heads.count, block.rows, sums.size(2)}, sums.strides(),
            sums.offset() + heads.offset * sums.strides()[0] + first_row * sums.size(2));
        Multiply(block_sums, grad_scores, block_keys, accumulate);
      }
    }
    Tensor line_grads = PositionsOf(grad_q, shape, lines, line);
    const Dims& positions = line_grads.shape();
    Call<op::Copy>(line_grads,
                   sums.AsStrided(positions, ContiguousStrides(positions), sums.offset()));
  };
  Branches branches(context, branch_count);
  for (std::int64_t line = 0; line < lines.lines; ++line) {
    const auto branch = static_cast<int>(line % branch_count);
    branches.Run(branch, [&](const Context& context) { of_line(context, line, branch); });
  }
  branches.Join();
  grad_keys.PutBack();
  grad_values.PutBack();
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
