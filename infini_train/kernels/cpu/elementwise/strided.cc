#include "infini_train/kernels/cpu/elementwise/strided.h"

namespace infini_train::cpu {

Operand MakeOperand(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.raw_data()), &tensor.strides(), tensor.IsContiguous(),
          tensor.dtype(), tensor.dtype()};
}

Operand MakeConstant(const void* value, DataType dtype) {
  static const Dims kZeroStrides = Dims::Filled(kMaxRank, 0);
  // Inputs are never written.
  return {static_cast<std::byte*>(const_cast<void*>(value)), &kZeroStrides, false, dtype, dtype};
}

StridedPlan::StridedPlan(const Dims& shape, std::span<const Operand> operands)
    : num_operands_(static_cast<int>(operands.size())) {
  numel_ = 1;
  for (const std::int64_t size : shape)
    numel_ *= size;
  bool linear = true;
  for (int k = 0; k < num_operands_; ++k) {
    data_[k] = operands[k].data;
    linear &= operands[k].contiguous;
  }
  if (linear || numel_ <= 1) {
    sizes_[0] = numel_;
    for (int k = 0; k < num_operands_; ++k)
      strides_[0][k] = static_cast<std::int64_t>(SizeOf(operands[k].dtype));
    return;
  }
  Simplify(shape, operands);
}

void StridedPlan::MoveDimension(int dim, int position) {
  const int first = std::min(dim, position);
  const int last = std::max(dim, position) + 1;
  const int middle = dim < position ? dim + 1 : dim;
  std::rotate(sizes_.begin() + first, sizes_.begin() + middle, sizes_.begin() + last);
  std::rotate(strides_.begin() + first, strides_.begin() + middle, strides_.begin() + last);
}

void StridedPlan::Simplify(const Dims& shape, std::span<const Operand> operands) {
  std::array<std::int64_t, kMaxRank> sizes;
  std::array<std::array<std::int64_t, kMaxOperands>, kMaxRank> strides;
  int rank = 0;
  std::int64_t row_major = numel_;
  for (int d = 0; d < shape.size(); ++d) {
    row_major /= shape[d];
    if (shape[d] == 1) continue;
    std::array<std::int64_t, kMaxOperands> row = {};
    for (int k = 0; k < num_operands_; ++k) {
      const std::int64_t step = operands[k].contiguous ? row_major : (*operands[k].strides)[d];
      row[k] = step * static_cast<std::int64_t>(SizeOf(operands[k].dtype));
    }
    // Largest stride first: of the output, then of the inputs in turn. Equal ones keep their order.
    int position = rank++;
    for (; position > 0 && strides[position - 1] < row; --position) {
      strides[position] = strides[position - 1];
      sizes[position] = sizes[position - 1];
    }
    strides[position] = row;
    sizes[position] = shape[d];
  }
  rank_ = 0;
  for (int d = 0; d < rank; ++d) {
    bool merges = rank_ > 0;
    for (int k = 0; merges && k < num_operands_; ++k)
      merges = strides_[rank_ - 1][k] == strides[d][k] * sizes[d];
    if (merges) {
      sizes_[rank_ - 1] *= sizes[d];
      strides_[rank_ - 1] = strides[d];
    } else {
      sizes_[rank_] = sizes[d];
      strides_[rank_] = strides[d];
      ++rank_;
    }
  }
  inner_ = rank_ - 1;
}

StridedPlan PlanLines(const Dims& shape, int dim, std::span<const Operand> operands) {
  std::array<Operand, kMaxOperands> lines;
  std::array<Dims, kMaxOperands> strides;
  Dims line_shape = shape;
  line_shape.erase(dim);
  const std::size_t count = std::min<std::size_t>(operands.size(), kMaxOperands);
  for (std::size_t k = 0; k < count; ++k) {
    for (int d = 0; d < shape.size(); ++d) {
      if (d != dim) strides[k].push_back((*operands[k].strides)[d]);
    }
    lines[k] = operands[k];
    lines[k].strides = &strides[k];
    lines[k].contiguous = false;
  }
  return StridedPlan(line_shape, {lines.data(), count});
}

}  // namespace infini_train::cpu
