#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "infini_train/core/api.h"

namespace infini_train {

/// The largest number of dimensions of a tensor.
inline constexpr int kMaxRank = 8;

/// A shape or a list of strides (in elements): at most kMaxRank numbers, kept inline.
class INFINI_TRAIN_API Dims {
 public:
  Dims() = default;
  /// Throws Error for more than kMaxRank entries.
  Dims(std::initializer_list<std::int64_t> values);
  explicit Dims(std::span<const std::int64_t> values);
  /// `rank` entries of `value`.
  static Dims Filled(int rank, std::int64_t value);

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t operator[](int i) const { return values_[i]; }
  std::int64_t& operator[](int i) { return values_[i]; }
  std::int64_t back() const { return values_[size_ - 1]; }
  std::int64_t& back() { return values_[size_ - 1]; }
  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + size_; }
  std::int64_t* begin() { return values_.data(); }
  std::int64_t* end() { return values_.data() + size_; }

  void push_back(std::int64_t value);
  void insert(int position, std::int64_t value);
  void erase(int position);

  bool operator==(const Dims& other) const;

  /// "[2, 3, 4]"
  std::string ToString() const;

 private:
  std::array<std::int64_t, kMaxRank> values_{};
  int size_ = 0;
};

/// Product of the entries; 1 for no dimensions. Throws Error on a negative entry or when the
/// product of those other than 0 does not fit 63 bits, so that the strides of every shape that has
/// a Numel do.
INFINI_TRAIN_API std::int64_t Numel(const Dims& shape);

/// Row-major strides in elements, of a shape that has a Numel.
INFINI_TRAIN_API Dims ContiguousStrides(const Dims& shape);

/// The common shape under NumPy's broadcasting rules. Throws Error naming both shapes.
INFINI_TRAIN_API Dims BroadcastShapes(const Dims& a, const Dims& b);

/// Maps a dimension in [-rank, rank) to [0, rank). Throws Error otherwise.
INFINI_TRAIN_API int NormalizeDim(int dim, int rank);

}  // namespace infini_train
