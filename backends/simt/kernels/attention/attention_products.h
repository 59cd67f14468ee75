#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/simt/branches.h"
#include "backends/simt/dialect.h"
#include "backends/simt/kernels/attention/attention_heads.h"
#include "backends/simt/kernels/attention/attention_products_plan.h"
#include "infini_train/core/dims.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"

/// Attention in half types by products of the op Gemm, for chips whose matrix units only their
/// library reaches. Scores are made block by block and chunk by chunk of heads
/// (attention_products_plan.h), so few that the chip's caches hold most of them. They are float32;
/// weights are rounded to the half type, and take the place of the scores in memory
/// (attention_products_memory.h).
namespace infini_train::simt {

/// Whether products are the better way.
inline bool TakesAttentionByProducts(const Tensor& q, const Tensor& k,
                                     const Tensor& cumulative_lengths) {
  constexpr std::int64_t kLeast = 64;
  return SizeOf(q.dtype()) == 2 && !cumulative_lengths.defined() && q.size(2) >= kLeast &&
         k.size(2) >= kLeast && q.numel() > 0;
}

inline ProductsShape ProductsShapeOf(const AttentionShape& shape) {
  return {shape.batch, shape.kv_heads, shape.group, shape.queries,
          shape.keys,  shape.window,   shape.causal};
}

/// How many lines are worked on at once.
inline int BranchesFor(const HeadLines& lines) {
  return static_cast<int>(std::min<std::int64_t>(lines.lines, kMaxBranches));
}

/// Some heads and the block that is worked on, for kernels. Rows and columns are those of a head's
/// scores.
struct ScoresChunk {
  ScoresChunk(const AttentionShape& shape, const HeadChunk& heads, const ScoresBlock& block)
      : heads(heads),
        block(block),
        last(static_cast<int>(shape.keys - block.first_key)),
        diagonal(shape.causal ? last + 1 + static_cast<int>(block.first_query - shape.queries)
                              : last),
        window(shape.window > 0 ? static_cast<int>(shape.window) : 1 << 30) {}

  struct Head {
    std::int64_t b, kv_head;
  };
  SIMT_DEVICE Head HeadAt(const AttentionShape& shape, int i) const {
    const int head = static_cast<int>(heads.first) + i * static_cast<int>(heads.step);
    const int kv_heads = static_cast<int>(shape.kv_heads);
    return {head / kv_heads, head % kv_heads};
  }

  struct Query {
    std::int64_t b, h, t;
    int number;  ///< in the block
  };
  SIMT_DEVICE Query QueryAt(const AttentionShape& shape, const Head& head, int row) const {
    const int group = static_cast<int>(shape.group);
    const int number = group == 1 ? row : row / group;
    return {head.b, head.kv_head * group + (row - number * group), block.first_query + number,
            number};
  }

  HeadChunk heads;
  ScoresBlock block;
  int last;      ///< behind the last key
  int diagonal;  ///< behind the last key that the first query sees, if there are as many
  int window;
};

/// The columns of a row whose keys its query sees: of those that the block has, begin to end.
struct VisibleColumns {
  SIMT_DEVICE VisibleColumns(const ScoresChunk& chunk, const ScoresChunk::Query& query)
      : end(Min(chunk.last, chunk.diagonal + query.number)), begin(end - chunk.window) {}
  SIMT_DEVICE bool Has(int x) const { return x >= begin && x < end; }
  /// Whether it has all, or any, of `count` columns.
  SIMT_DEVICE bool HasAll(int x, int count) const { return x >= begin && x + count <= end; }
  SIMT_DEVICE bool HasAny(int x, int count) const { return x + count > begin && x < end; }

  int end, begin;
};

/// The factors that dropout gives the weights of a query from column x on.
template <int kCount>
SIMT_DEVICE inline void DropoutFactors(const AttentionShape& shape, const ScoresChunk& chunk,
                                       const ScoresChunk::Query& query, int x,
                                       float (&factors)[kCount]) {
  const std::int64_t row = (query.b * shape.heads + query.h) * shape.queries + query.t;
  shape.dropout.Factors(row * shape.keys + chunk.block.first_key + x, factors);
}

inline Tensor Transposed(const Tensor& matrices) {
  const Dims& strides = matrices.strides();
  return matrices.AsStrided({matrices.size(0), matrices.size(2), matrices.size(1)},
                            {strides[0], strides[2], strides[1]}, matrices.offset());
}

/// out = a @ b, plus the former out where accumulate.
inline void Multiply(Tensor out, const Tensor& a, const Tensor& b, bool accumulate = false) {
  Call<op::Gemm>(out, a, b, Tensor(), accumulate);
}

}  // namespace infini_train::simt
