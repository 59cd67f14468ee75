#include "infini_train/core/dims.h"

#include <fmt/format.h>

#include <algorithm>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

void CheckRank(std::size_t rank) {
  if (rank > kMaxRank) {
    throw Error(fmt::format("expected at most {} dimensions, got {}", kMaxRank, rank));
  }
}

}  // namespace

Dims::Dims(std::initializer_list<std::int64_t> values)
    : Dims(std::span<const std::int64_t>(values.begin(), values.size())) {}

Dims::Dims(std::span<const std::int64_t> values) {
  CheckRank(values.size());
  std::copy(values.begin(), values.end(), values_.begin());
  size_ = static_cast<int>(values.size());
}

Dims Dims::Filled(int rank, std::int64_t value) {
  CheckRank(static_cast<std::size_t>(rank));
  Dims result;
  result.size_ = rank;
  std::fill(result.begin(), result.end(), value);
  return result;
}

void Dims::push_back(std::int64_t value) {
  insert(size_, value);
}

void Dims::insert(int position, std::int64_t value) {
  CheckRank(static_cast<std::size_t>(size_) + 1);
  std::copy_backward(begin() + position, end(), end() + 1);
  values_[position] = value;
  ++size_;
}

void Dims::erase(int position) {
  std::copy(begin() + position + 1, end(), begin() + position);
  --size_;
}

bool Dims::operator==(const Dims& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::string Dims::ToString() const {
  return fmt::format("[{}]", fmt::join(begin(), end(), ", "));
}

std::int64_t Numel(const Dims& shape) {
  std::int64_t product = 1;
  bool zero = false;
  bool overflow = false;
  for (std::int64_t extent : shape) {
    if (extent < 0) throw Error(fmt::format("negative extent in shape {}", shape.ToString()));
    if (extent == 0) {
      zero = true;
    } else {
      overflow |= __builtin_mul_overflow(product, extent, &product);
    }
  }
  if (overflow) throw Error(fmt::format("shape {} has too many elements", shape.ToString()));
  return zero ? 0 : product;
}

Dims ContiguousStrides(const Dims& shape) {
  Dims strides = Dims::Filled(shape.size(), 1);
  for (int i = shape.size() - 2; i >= 0; --i) {
    strides[i] = strides[i + 1] * std::max<std::int64_t>(shape[i + 1], 1);
  }
  return strides;
}

Dims BroadcastShapes(const Dims& a, const Dims& b) {
  Dims result = Dims::Filled(std::max(a.size(), b.size()), 1);
  for (int i = 0; i < result.size(); ++i) {
    const int from_end = result.size() - i;
    const std::int64_t extent_a = from_end <= a.size() ? a[a.size() - from_end] : 1;
    const std::int64_t extent_b = from_end <= b.size() ? b[b.size() - from_end] : 1;
    if (extent_a != extent_b && extent_a != 1 && extent_b != 1) {
      throw Error(
          fmt::format("shapes {} and {} do not broadcast together", a.ToString(), b.ToString()));
    }
    result[i] = extent_a == 1 ? extent_b : extent_a;
  }
  return result;
}

int NormalizeDim(int dim, int rank) {
  if (dim < -rank || dim >= rank) {
    throw Error(fmt::format("dimension {} is out of range for {} dimensions", dim, rank));
  }
  return dim < 0 ? dim + rank : dim;
}

}  // namespace infini_train
