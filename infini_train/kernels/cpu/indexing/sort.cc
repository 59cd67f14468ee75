#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "infini_train/kernels/cpu/elementwise/convert.h"
#include "infini_train/kernels/cpu/elementwise/elementwise.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

/// Maps numbers to unsigned integers of the same order; -0 is 0, NaN the largest.
std::uint32_t SortKey(float x) {
  if (x != x) return std::numeric_limits<std::uint32_t>::max();
  const auto bits = std::bit_cast<std::uint32_t>(x + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
std::uint64_t SortKey(double x) {
  if (x != x) return std::numeric_limits<std::uint64_t>::max();
  const auto bits = std::bit_cast<std::uint64_t>(x + 0.0);
  return bits >> 63 != 0 ? ~bits : bits | std::uint64_t{1} << 63;
}
std::uint32_t SortKey(std::int32_t x) {
  return static_cast<std::uint32_t>(x) ^ 0x80000000u;
}
std::uint64_t SortKey(std::int64_t x) {
  return static_cast<std::uint64_t>(x) ^ std::uint64_t{1} << 63;
}

/// A key above a position: orders equal keys by position, which makes any sort stable.
struct KeyAndPosition {
  std::uint64_t key;
  std::uint64_t position;
  bool operator<(const KeyAndPosition& other) const {
    return key != other.key ? key < other.key : position < other.position;
  }
};
void Pack(std::uint32_t key, std::int64_t position, std::uint64_t& entry) {
  entry = static_cast<std::uint64_t>(key) << 32 | static_cast<std::uint64_t>(position);
}
void Pack(std::uint64_t key, std::int64_t position, KeyAndPosition& entry) {
  entry = {key, static_cast<std::uint64_t>(position)};
}
std::int64_t PositionOf(std::uint64_t entry) {
  return static_cast<std::int64_t>(entry & 0xFFFFFFFFu);
}
std::int64_t PositionOf(const KeyAndPosition& entry) {
  return static_cast<std::int64_t>(entry.position);
}

/// Moves the k first entries to the front, in order.
template <typename Entry>
void SortFirst(std::vector<Entry>& entries, std::int64_t k) {
  constexpr std::int64_t kFew = 128;  // A heap of so many stays in the first-level cache.
  const auto first = entries.begin();
  if (k == static_cast<std::int64_t>(entries.size())) {
    std::sort(first, entries.end());
  } else if (k <= kFew) {
    std::partial_sort(first, first + k, entries.end());
  } else {
    std::nth_element(first, first + k - 1, entries.end());
    std::sort(first, first + k);
  }
}

/// Numbers of type T, read as such from x's dtype; the k first of each row in ascending or
/// descending order.
template <typename T, typename Entry>
void SortRows(const Tensor& values, const Tensor& indices, const Tensor& x, bool descending) {
  const std::int64_t length = x.size(-1);
  const std::int64_t k = values.size(-1);
  const auto element_size = static_cast<std::int64_t>(SizeOf(x.dtype()));
  const auto* x_data = static_cast<const std::byte*>(x.raw_data());
  auto* value_data = static_cast<std::byte*>(values.raw_data());
  std::int64_t* index_data = indices.data<std::int64_t>();
  ParallelFor(
      0, x.numel() / length, RowGrain(length * 8), [&](std::int64_t begin, std::int64_t end) {
        std::vector<T> numbers(static_cast<std::size_t>(length));
        std::vector<Entry> entries(static_cast<std::size_t>(length));
        for (std::int64_t row = begin; row < end; ++row) {
          const std::byte* source = x_data + row * length * element_size;
          Convert(x.dtype(), source, DataTypeOf<T>(), numbers.data(), length);
          for (std::int64_t i = 0; i < length; ++i) {
            const auto position = static_cast<std::size_t>(i);
            const auto key = SortKey(numbers[position]);
            Pack(descending ? ~key : key, i, entries[position]);
          }
          SortFirst(entries, k);
          for (std::int64_t i = 0; i < k; ++i) {
            const std::int64_t position = PositionOf(entries[static_cast<std::size_t>(i)]);
            index_data[row * k + i] = position;
            std::memcpy(value_data + (row * k + i) * element_size, source + position * element_size,
                        static_cast<std::size_t>(element_size));
          }
        }
      });
}

void SortLastDimension(const Tensor& values, const Tensor& indices, const Tensor& x,
                       bool descending) {
  if (values.numel() == 0) return;
  const bool short_rows = x.size(-1) <= std::int64_t{1} << 32;
  switch (x.dtype()) {
    case DataType::kFloat64:
      return SortRows<double, KeyAndPosition>(values, indices, x, descending);
    case DataType::kInt64:
      return SortRows<std::int64_t, KeyAndPosition>(values, indices, x, descending);
    case DataType::kFloat32:
    case DataType::kFloat16:
    case DataType::kBFloat16:
      if (!short_rows) return SortRows<double, KeyAndPosition>(values, indices, x, descending);
      return SortRows<float, std::uint64_t>(values, indices, x, descending);
    default:
      if (!short_rows)
        return SortRows<std::int64_t, KeyAndPosition>(values, indices, x, descending);
      return SortRows<std::int32_t, std::uint64_t>(values, indices, x, descending);
  }
}

void Sort(const KernelContext&, Tensor& values, Tensor& indices, const Tensor& x, bool descending) {
  SortLastDimension(values, indices, x, descending);
}

void TopK(const KernelContext&, Tensor& values, Tensor& indices, const Tensor& x, bool largest) {
  SortLastDimension(values, indices, x, largest);
}

}  // namespace

REGISTER_KERNEL(kCPU, Sort, &Sort);
REGISTER_KERNEL(kCPU, TopK, &TopK);

}  // namespace infini_train::cpu
