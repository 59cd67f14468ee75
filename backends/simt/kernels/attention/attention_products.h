#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/attention/attention_heads.h"
#include "infini_train/core/dims.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"

/// Attention in half types by products of the op Gemm, for chips whose matrix units only their
/// library reaches. Scores are made block by block of queries and chunk by chunk of heads, so few
/// that the chip's caches hold them; weights are rounded to the half type, sums are float32.
///
/// Heads are those of keys and values, counted through the batch: N of them, each with `group`
/// query heads. A block has the queries [first, first + count) of all heads, as rows of matrices
/// [N, group * count, D].
namespace infini_train::simt {

/// Whether products are the better way.
inline bool TakesAttentionByProducts(const Tensor& q, const Tensor& k,
                                     const Tensor& cumulative_lengths) {
  constexpr std::int64_t kLeast = 64;
  return SizeOf(q.dtype()) == 2 && !cumulative_lengths.defined() && q.size(2) >= kLeast &&
         k.size(2) >= kLeast && q.numel() > 0;
}

/// A block of queries and the keys that any of them sees.
struct QueryBlock {
  static constexpr std::int64_t kQueries = 256;

  QueryBlock(const AttentionShape& shape, std::int64_t first)
      : first(first), count(std::min(kQueries, shape.queries - first)), rows(shape.group * count) {
    const std::int64_t shift = shape.causal ? shape.keys - shape.queries + 1 : shape.keys;
    const auto end_for = [&](std::int64_t query) {
      return std::min(shape.keys, shape.causal ? query + shift : shift);
    };
    // At least one, so that no matrix is empty; lanes look again at what each query sees.
    const std::int64_t end = std::max<std::int64_t>(end_for(first + count - 1), 1);
    const std::int64_t begin = shape.window > 0 ? end_for(first) - shape.window : 0;
    first_key = std::clamp<std::int64_t>(begin, 0, end - 1);
    keys = end - first_key;
    pitch = (keys + kAlignment - 1) / kAlignment * kAlignment;
  }

  /// Libraries are fast where rows begin at 16 bytes; half as much for vectors of scores.
  static constexpr std::int64_t kAlignment = 8;

  std::int64_t first, count;
  std::int64_t rows;  ///< of a head
  std::int64_t first_key, keys;
  std::int64_t pitch;  ///< of rows of scores
};

/// Heads [first, first + count) in a block of queries: what is worked on at once.
struct ScoresChunk {
  std::int64_t first, count;
  QueryBlock block;

  /// Where a row of the chunk's matrices belongs. Rows fit an int, whose divisions are quick.
  struct Query {
    std::int64_t b, h, t;
  };
  SIMT_DEVICE Query At(const AttentionShape& shape, int row) const {
    const int head = static_cast<int>(first) + row / static_cast<int>(block.rows);
    const int r = row % static_cast<int>(block.rows);
    const int kv_heads = static_cast<int>(shape.kv_heads);
    const int count = static_cast<int>(block.count);
    return {head / kv_heads, head % kv_heads * shape.group + r / count, block.first + r % count};
  }
};

/// The columns of a row of scores whose keys its query sees.
struct VisibleColumns {
  SIMT_DEVICE VisibleColumns(const AttentionShape& shape, const QueryBlock& block, std::int64_t t) {
    const HeadRange keys = shape.VisibleKeys(t);
    begin = static_cast<int>(keys.begin - block.first_key);
    end = static_cast<int>(keys.end - block.first_key);
  }
  SIMT_DEVICE bool Has(int x) const { return x >= begin && x < end; }

  int begin, end;
};

/// Calls `body(block)` for all blocks of queries.
template <typename Body>
void ForEachQueryBlock(const AttentionShape& shape, const Body& body) {
  for (std::int64_t first = 0; first < shape.queries; first += QueryBlock::kQueries)
    body(QueryBlock(shape, first));
}

/// Calls `body(chunk)` for all chunks of heads of a block.
template <typename Body>
void ForEachChunk(const AttentionShape& shape, const QueryBlock& block, const Body& body) {
  constexpr std::int64_t kScores = std::int64_t{8} << 20;
  const std::int64_t heads = shape.batch * shape.kv_heads;
  const std::int64_t most = std::max<std::int64_t>(1, kScores / (block.rows * block.pitch));
  for (std::int64_t first = 0; first < heads; first += most)
    body(ScoresChunk{first, std::min(most, heads - first), block});
}

/// A view of rows [first, first + rows) of some matrices of contiguous ones [N, R, C].
inline Tensor RowsOf(const Tensor& matrices, const ScoresChunk& chunk, std::int64_t first,
                     std::int64_t rows) {
  const std::int64_t columns = matrices.size(2);
  const std::int64_t size = matrices.size(1) * columns;
  return matrices.AsStrided({chunk.count, rows, columns}, {size, columns, 1},
                            matrices.offset() + chunk.first * size + first * columns);
}

inline Tensor Transposed(const Tensor& matrices) {
  const Dims& strides = matrices.strides();
  return matrices.AsStrided({matrices.size(0), matrices.size(2), matrices.size(1)},
                            {strides[0], strides[2], strides[1]}, matrices.offset());
}

/// New matrices [n, R, keys] of a chunk, whose rows are apart by the block's pitch.
inline Tensor ScoresOf(const ScoresChunk& chunk, DataType dtype, Device device) {
  const QueryBlock& block = chunk.block;
  const Tensor all = Tensor::Empty({chunk.count, block.rows, block.pitch}, dtype, device);
  return all.AsStrided({chunk.count, block.rows, block.keys}, all.strides(), all.offset());
}

/// Positions [first, first + count) of x [B, H, T, D] as [B, KV, H / KV, count, D].
inline Tensor PositionsOf(const Tensor& x, std::int64_t kv_heads, std::int64_t first,
                          std::int64_t count) {
  const Dims& strides = x.strides();
  const std::int64_t group = x.size(1) / kv_heads;
  return x.AsStrided({x.size(0), kv_heads, group, count, x.size(3)},
                     {strides[0], strides[1] * group, strides[1], strides[2], strides[3]},
                     x.offset() + first * strides[2]);
}

/// Those positions as contiguous matrices [N, group * count, D].
inline Tensor Matrices(const Tensor& x, std::int64_t kv_heads, std::int64_t first,
                       std::int64_t count) {
  const Tensor positions = PositionsOf(x, kv_heads, first, count);
  Tensor result = Tensor::Empty(positions.shape(), x.dtype(), x.device());
  Call<op::Copy>(result, positions);
  const Dims shape = {x.size(0) * kv_heads, x.size(1) / kv_heads * count, x.size(3)};
  return result.AsStrided(shape, ContiguousStrides(shape), result.offset());
}

/// Writes matrices [N, group * count, D] to those positions.
inline void PutMatrices(const Tensor& x, std::int64_t kv_heads, std::int64_t first,
                        std::int64_t count, const Tensor& matrices) {
  Tensor positions = PositionsOf(x, kv_heads, first, count);
  const Dims& shape = positions.shape();
  Call<op::Copy>(positions, matrices.AsStrided(shape, ContiguousStrides(shape), matrices.offset()));
}

/// out = a @ b, plus the former out where accumulate.
inline void Multiply(Tensor out, const Tensor& a, const Tensor& b, bool accumulate = false) {
  Call<op::Gemm>(out, a, b, Tensor(), accumulate);
}

/// A group of lanes for each row of a chunk's matrices, and a vector for each lane in a step.
inline constexpr int kScoresGroup = 32;
inline constexpr int kScoresVector = kMaxVectorWidth<float>;
inline constexpr int kScoresStep = kScoresGroup * kScoresVector;

/// The factors that dropout gives the weights of a query from column x on.
SIMT_DEVICE inline void DropoutFactors(const AttentionShape& shape, const QueryBlock& block,
                                       const ScoresChunk::Query& query, int x,
                                       float (&factors)[kScoresVector]) {
  const std::int64_t row = (query.b * shape.heads + query.h) * shape.queries + query.t;
  shape.dropout.Factors(row * shape.keys + block.first_key + x, factors);
}

inline Geometry ScoresGeometry(const ScoresChunk& chunk) {
  return Linear(chunk.count * chunk.block.rows * kScoresGroup);
}

}  // namespace infini_train::simt
