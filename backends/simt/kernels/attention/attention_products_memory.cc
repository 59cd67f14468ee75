#include "backends/simt/kernels/attention/attention_products_memory.h"

#include <algorithm>

#include "infini_train/core/dims.h"
#include "infini_train/core/dtype.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

/// Whether the rows of each head's matrix are equally far apart.
bool HasMatrices(const Tensor& positions) {
  const Dims& strides = positions.strides();
  const std::int64_t group = positions.size(3);
  const std::int64_t row = group == 1 ? strides[2] : strides[3];
  return row >= positions.size(4) && (group == 1 || strides[2] == group * strides[3]);
}

/// Whether the matrices of all heads are.
bool IsOneLine(const Tensor& positions) {
  const Dims& strides = positions.strides();
  return positions.size(0) == 1 || positions.size(1) == 1 ||
         strides[0] == positions.size(1) * strides[1];
}

}  // namespace

Tensor PositionsOf(const Tensor& x, const ProductsShape& shape) {
  const Dims& strides = x.strides();
  return x.AsStrided(
      {x.size(0), shape.kv_heads, x.size(2), x.size(1) / shape.kv_heads, x.size(3)},
      {strides[0], strides[1] * (x.size(1) / shape.kv_heads), strides[2], strides[1], strides[3]},
      x.offset());
}

Tensor PositionsOf(const Tensor& x, const ProductsShape& shape, const HeadLines& lines,
                   std::int64_t line) {
  const Tensor all = PositionsOf(x, shape);
  if (lines.is_one()) return all;
  const int dim = lines.step == 1 ? 0 : 1;
  Dims part = all.shape();
  part[dim] = 1;
  return all.AsStrided(part, all.strides(), all.offset() + line * all.strides()[dim]);
}

HeadLines LinesFor(const ProductsShape& shape, std::int64_t scores,
                   std::initializer_list<const Tensor*> tensors) {
  const bool in_place = std::all_of(tensors.begin(), tensors.end(), [&](const Tensor* x) {
    const Tensor positions = PositionsOf(*x, shape);
    return !HasMatrices(positions) || IsOneLine(positions);
  });
  const HeadLines longest = HeadLines::Longest(shape);
  const bool are_large = longest.length * scores >= ProductsLimits().scores / 2;
  return in_place || !are_large ? HeadLines::All(shape) : longest;
}

HeadMatrices::HeadMatrices(const Tensor& x, const ProductsShape& shape, const HeadLines& lines)
    : memory_(PositionsOf(x, shape)) {
  if (!HasMatrices(memory_) || (lines.is_one() && !IsOneLine(memory_))) {
    original_ = memory_;
    memory_ = Tensor::Empty(memory_.shape(), x.dtype(), x.device());
  }
  row_stride_ = memory_.strides()[memory_.size(3) == 1 ? 2 : 3];
}

HeadMatrices HeadMatrices::Read(const Tensor& x, const ProductsShape& shape,
                                const HeadLines& lines) {
  HeadMatrices result(x, shape, lines);
  if (result.original_.defined()) Call<op::Copy>(result.memory_, result.original_);
  return result;
}

HeadMatrices HeadMatrices::Write(const Tensor& x, const ProductsShape& shape,
                                 const HeadLines& lines) {
  return HeadMatrices(x, shape, lines);
}

Tensor HeadMatrices::Of(const HeadChunk& heads, std::int64_t first, std::int64_t count) const {
  const Dims& strides = memory_.strides();
  const std::int64_t kv_heads = memory_.size(1);
  const std::int64_t stride = heads.step == kv_heads ? strides[0] : strides[1];
  return memory_.AsStrided({heads.count, count, memory_.size(4)}, {stride, row_stride_, 1},
                           memory_.offset() + heads.first / kv_heads * strides[0] +
                               heads.first % kv_heads * strides[1] + first * row_stride_);
}

void HeadMatrices::PutBack() const {
  if (!original_.defined()) return;
  Tensor out = original_;
  Call<op::Copy>(out, memory_);
}

std::vector<Tensor> MakeScores(const HeadLines& lines, const std::vector<ScoresBlock>& blocks,
                               int count, DataType dtype, Device device) {
  std::int64_t most = 0;
  for (const ScoresBlock& block : blocks) {
    for (const HeadChunk& heads : ChunksOf(lines, 0, block, LimitsOf(count)))
      most = std::max(most, heads.count * block.scores());
  }
  std::vector<Tensor> memory;
  for (int i = 0; i < count; ++i)
    memory.push_back(Tensor::Empty({most}, dtype, device));
  return memory;
}

Tensor ScoresOf(const Tensor& memory, const HeadChunk& heads, const ScoresBlock& block,
                DataType dtype) {
  const auto ratio = static_cast<std::int64_t>(SizeOf(memory.dtype()) / SizeOf(dtype));
  const std::int64_t pitch = block.pitch * ratio;
  return Tensor::FromStorage(memory.storage(), dtype, {heads.count, block.rows, block.keys},
                             {block.rows * pitch, pitch, 1}, memory.offset() * ratio);
}

}  // namespace infini_train::simt
