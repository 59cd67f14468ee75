#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "infini_train/core/dims.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"

namespace infini_train::cpu {

/// The largest number of arrays in one strided loop.
inline constexpr int kMaxOperands = 6;

/// One array of a strided loop.
struct Operand {
  std::byte* data = nullptr;
  /// In elements, one for each dimension of the loop's shape; 0 repeats the element.
  const Dims* strides = nullptr;
  /// Row-major without gaps in the loop's shape; `strides` is then not looked at.
  bool contiguous = false;
  DataType dtype = DataType::kFloat32;
  /// The type that an element-wise loop reads or writes (elementwise.h).
  DataType compute_dtype = DataType::kFloat32;
};

/// A tensor of the loop's shape.
Operand MakeOperand(const Tensor& tensor);

/// One value of `dtype` in place of an input array.
Operand MakeConstant(const void* value, DataType dtype);

/// The iteration space of a loop over arrays of one shape, simplified: dimensions of extent 1 are
/// dropped, the others sorted so that the first array (the output) is walked in memory order, and
/// those merged that all arrays walk like one. Only for loops in which the order of the elements
/// does not matter.
class StridedPlan {
 public:
  StridedPlan(const Dims& shape, std::span<const Operand> operands);

  std::int64_t numel() const { return numel_; }
  int rank() const { return rank_; }
  std::int64_t size(int dim) const { return sizes_[dim]; }
  /// Bytes between neighbours.
  std::int64_t stride(int dim, int operand) const { return strides_[dim][operand]; }
  /// Length of the innermost dimension.
  std::int64_t inner_size() const { return sizes_[inner_]; }
  std::int64_t inner_stride(int operand) const { return strides_[inner_][operand]; }
  std::byte* data(int operand) const { return data_[operand]; }

  /// Takes a dimension out of the order and puts it in at `position`.
  void MoveDimension(int dim, int position);

  /// Calls `body(pointers, n)` for the pieces of innermost rows that make up elements [begin, end)
  /// of the simplified space; pointers[k] is where operand k's first element of the piece is.
  template <typename Body>
  void ForEachRun(std::int64_t begin, std::int64_t end, const Body& body) const {
    ForEachRun(rank_, begin, end, body);
  }

  /// The same over the first `rank` dimensions only.
  template <typename Body>
  void ForEachRun(int rank, std::int64_t begin, std::int64_t end, const Body& body) const {
    if (begin >= end) return;
    if (rank == 0) {
      body(data_.data(), std::int64_t{1});
      return;
    }
    const int inner = rank - 1;
    std::array<std::int64_t, kMaxRank> index;
    std::array<std::byte*, kMaxOperands> pointers = data_;
    std::int64_t rest = begin;
    for (int d = inner; d >= 0; --d) {
      index[d] = rest % sizes_[d];
      rest /= sizes_[d];
      Move(pointers, d, index[d]);
    }
    for (std::int64_t position = begin;;) {
      const std::int64_t count = std::min(sizes_[inner] - index[inner], end - position);
      body(pointers.data(), count);
      position += count;
      if (position >= end) return;
      Move(pointers, inner, -index[inner]);
      index[inner] = 0;
      for (int d = inner - 1; d >= 0; --d) {
        if (++index[d] < sizes_[d]) {
          Move(pointers, d, 1);
          break;
        }
        index[d] = 0;
        Move(pointers, d, 1 - sizes_[d]);
      }
    }
  }

 private:
  void Simplify(const Dims& shape, std::span<const Operand> operands);
  void Move(std::array<std::byte*, kMaxOperands>& pointers, int dim, std::int64_t steps) const {
    for (int k = 0; k < num_operands_; ++k)
      pointers[k] += steps * strides_[dim][k];
  }

  int rank_ = 1;
  int inner_ = 0;  // rank_ - 1
  int num_operands_ = 0;
  std::int64_t numel_ = 0;
  std::array<std::int64_t, kMaxRank> sizes_;
  std::array<std::array<std::int64_t, kMaxOperands>, kMaxRank> strides_;
  std::array<std::byte*, kMaxOperands> data_;
};

/// The plan of a loop over the lines along `dim`: over all other dimensions of `shape`. Operands
/// are those of the whole shape.
StridedPlan PlanLines(const Dims& shape, int dim, std::span<const Operand> operands);

/// Bytes between neighbours of a tensor along a dimension.
inline std::int64_t ByteStride(const Tensor& tensor, int dim) {
  return tensor.strides()[dim] * static_cast<std::int64_t>(SizeOf(tensor.dtype()));
}

}  // namespace infini_train::cpu
