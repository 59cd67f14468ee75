#include "backends/simt/kernels/attention/attention_products.h"

#include <algorithm>
#include <limits>
#include <numbers>

#include "backends/simt/group.h"
#include "backends/simt/kernels/attention/attention.h"
#include "backends/simt/kernels/attention/attention_products_backward.h"
#include "backends/simt/kernels/attention/attention_products_memory.h"
#include "infini_train/core/scalar.h"

namespace infini_train::simt {
namespace {

/// A group of lanes has a row of scores, and a lane a vector of it in each step.
constexpr int kGroup = 32;
constexpr int kVector = kMaxVectorWidth<float>;
constexpr int kStep = kGroup * kVector;
constexpr int kBlock = 256;
constexpr int kRowsOfABlock = kBlock / kGroup;
constexpr float kNone = -std::numeric_limits<float>::infinity();

using Scores = Vec<float, kVector>;

struct WeightsArguments {
  float* scores;  ///< the weights, divided by their sums, take the place of each row
  HeadRows<float> lse;
  ScoresChunk chunk;
  AttentionShape shape;
};

// Scores from column x of a row on, -infinity where the query does not see the key.
SIMT_DEVICE inline Scores ScaledScores(const float* row, int x, const VisibleColumns& visible,
                                       float scale) {
  Scores values = {};
  if (x < visible.end) values = Load<kVector>(row + x);
  SIMT_UNROLL
  for (int i = 0; i < kVector; ++i)
    values[i] *= scale;
  if (visible.HasAll(x, kVector)) return values;
  SIMT_UNROLL
  for (int i = 0; i < kVector; ++i)
    values[i] = visible.Has(x + i) ? values[i] : kNone;
  return values;
}

SIMT_DEVICE inline float Largest(float max, const Scores& values) {
  SIMT_UNROLL
  for (int i = 0; i < kVector; ++i)
    max = MaxNumber(max, values[i]);
  return max;
}

// What is subtracted from scores, of which `max` is the largest.
SIMT_DEVICE inline float ShiftOf(float max) {
  return max == kNone ? 0.0f : max;
}

// Replaces scores by their weights, and gives the sum of these.
SIMT_DEVICE inline float ToWeights(Scores& values, float shift) {
  float sum = 0;
  SIMT_UNROLL
  for (int i = 0; i < kVector; ++i) {
    values[i] = FastExp2(values[i] - shift);
    sum += values[i];
  }
  return sum;
}

template <typename S, bool kDropout>
SIMT_DEVICE inline void PutWeights(const WeightsArguments& args, S* row,
                                   const ScoresChunk::Query& query, int x, const Scores& values,
                                   float factor) {
  float factors[kVector];
  if constexpr (kDropout) DropoutFactors(args.shape, args.chunk, query, x, factors);
  Vec<S, kVector> weights;
  SIMT_UNROLL
  for (int i = 0; i < kVector; ++i)
    weights[i] = FromCompute<S>(values[i] * (kDropout ? factor * factors[i] : factor));
  Store(row + x, weights);
}

// Lanes hold kHeld vectors of a row; what longer rows have besides is read twice.
template <typename S, int kHeld, bool kDropout>
SIMT_KERNEL void WeightsKernel(WeightsArguments args) {
  const AttentionShape& shape = args.shape;
  const ScoresBlock& block = args.chunk.block;
  const int pitch = static_cast<int>(block.pitch);
  const int rows = static_cast<int>(block.rows);
  const int lane = GroupLane<kGroup>() * kVector;
  const auto scale = static_cast<float>(shape.scale * std::numbers::log2e);
  const auto chunk_head = static_cast<int>(BlockIndexY());
  const ScoresChunk::Head head = args.chunk.HeadAt(shape, chunk_head);
  float* const matrix = args.scores + chunk_head * block.rows * block.pitch;
  for (auto row = static_cast<int>(BlockIndex() * kRowsOfABlock + ThreadIndex() / kGroup);
       row < rows; row += static_cast<int>(GridSize() * kRowsOfABlock)) {
    const ScoresChunk::Query query = args.chunk.QueryAt(shape, head, row);
    const VisibleColumns visible(args.chunk, query);
    float* const from = matrix + row * block.pitch;
    // Written behind what all lanes have read.
    S* const to = reinterpret_cast<S*>(from);

    Scores held[kHeld];
    float max = kNone;
    SIMT_UNROLL
    for (int p = 0; p < kHeld; ++p) {
      held[p] = ScaledScores(from, p * kStep + lane, visible, scale);
      max = Largest(max, held[p]);
    }
    float sum = 0;
    for (int x = kHeld * kStep + lane; x < visible.end; x += kStep) {
      Scores values = ScaledScores(from, x, visible, scale);
      const float larger = Largest(max, values);
      sum = sum * FastExp2(max - ShiftOf(larger)) + ToWeights(values, ShiftOf(larger));
      max = larger;
    }
    const float row_max = ReduceGroup<kGroup>(max, MaxOp());
    const float shift = ShiftOf(row_max);
    if (kHeld * kStep < visible.end) sum *= FastExp2(max - shift);
    SIMT_UNROLL
    for (int p = 0; p < kHeld; ++p)
      sum += ToWeights(held[p], shift);
    sum = ReduceGroup<kGroup>(sum, SumOp());
    const float factor = sum == 0 ? 0.0f : 1 / sum;
    if (lane == 0)
      Store(args.lse.At(query.b, query.h, query.t),
            row_max * std::numbers::ln2_v<float> + Log(sum));

    SIMT_UNROLL
    for (int p = 0; p < kHeld; ++p) {
      const int x = p * kStep + lane;
      if (x < pitch) PutWeights<S, kDropout>(args, to, query, x, held[p], factor);
    }
    for (int first = kHeld * kStep; first < pitch; first += kStep) {
      const int x = first + lane;
      Scores values = ScaledScores(from, x, visible, scale);
      ToWeights(values, shift);
      SyncGroup<kGroup>();
      if (x < pitch) PutWeights<S, kDropout>(args, to, query, x, values, factor);
    }
  }
}

template <typename S>
void PutWeightsOf(const Context& context, const WeightsArguments& args) {
  const ScoresBlock& block = args.chunk.block;
  const std::int64_t blocks = (block.rows + kRowsOfABlock - 1) / kRowsOfABlock;
  const Geometry geometry{
      .grid_x = std::min(blocks, kMaxGridX), .grid_y = args.chunk.heads.count, .block = kBlock};
  const auto launch = [&](auto kernel) { Launch(context, geometry, kernel, args); };
  if (args.shape.dropout.threshold > 0) {
    launch(WeightsKernel<S, 8, true>);
  } else if (block.pitch <= 2 * kStep) {
    launch(WeightsKernel<S, 2, false>);
  } else if (block.pitch <= 4 * kStep) {
    launch(WeightsKernel<S, 4, false>);
  } else if (block.pitch <= 6 * kStep) {
    launch(WeightsKernel<S, 6, false>);
  } else {
    launch(WeightsKernel<S, 8, false>);
  }
}

/// What queries that see no key are given.
void FillUnseeing(const ProductsShape& shape, const Tensor& out, const Tensor& lse) {
  const std::int64_t count = shape.FirstSeeing();
  if (count == 0) return;
  const auto fill = [&](const Tensor& x, double value) {
    Dims part = x.shape();
    part[2] = count;
    Tensor rows = x.AsStrided(part, x.strides(), x.offset());
    Call<op::Fill>(rows, value);
  };
  fill(out, 0);
  fill(lse, kNone);
}

template <typename S>
void Forward(const Context& context, Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k,
             const Tensor& v, const AttentionShape& attention) {
  const ProductsShape shape = ProductsShapeOf(attention);
  const auto blocks = BlocksOfQueries(shape);
  const HeadLines lines = LinesFor(shape, blocks.back().scores(), {&out, &q, &k, &v});
  const auto queries = HeadMatrices::Read(q, shape, lines);
  const auto keys = HeadMatrices::Read(k, shape, lines);
  const auto values = HeadMatrices::Read(v, shape, lines);
  const auto outs = HeadMatrices::Write(out, shape, lines);
  const int branch_count = BranchesFor(lines);
  const auto memory = MakeScores(lines, blocks, branch_count, DataType::kFloat32, context.device);
  Branches branches(context, branch_count);
  for (std::int64_t line = 0; line < lines.lines; ++line) {
    const auto branch = static_cast<int>(line % branch_count);
    const Tensor& scores = memory[branch];
    branches.Run(branch, [&](const Context& context) {
      for (const ScoresBlock& block : blocks) {
        const std::int64_t first_row = block.first_query * shape.group;
        for (const HeadChunk& heads : ChunksOf(lines, line, block, LimitsOf(branch_count))) {
          Multiply(ScoresOf(scores, heads, block, scores.dtype()),
                   queries.Of(heads, first_row, block.rows),
                   Transposed(keys.Of(heads, block.first_key, block.keys)));
          PutWeightsOf<S>(context, {scores.data<float>(), HeadRows<float>(lse),
                                    ScoresChunk(attention, heads, block), attention});
          Multiply(outs.Of(heads, first_row, block.rows), ScoresOf(scores, heads, block, q.dtype()),
                   values.Of(heads, block.first_key, block.keys));
        }
      }
    });
  }
  branches.Join();
  outs.PutBack();
  FillUnseeing(shape, out, lse);
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
