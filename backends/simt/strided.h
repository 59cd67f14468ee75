#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "backends/simt/dialect.h"
#include "infini_train/core/dims.h"
#include "infini_train/core/tensor.h"

/// Loops over arrays of one shape with any strides, as kernels take them: made on the host, passed
/// by value.
namespace infini_train::simt {

/// The largest number of arrays in one strided loop.
inline constexpr int kMaxArrays = 6;

/// Division of numbers below 2^31 by an invariant one through a multiplication (Granlund and
/// Montgomery, "Division by invariant integers using multiplication", 1994).
struct Divider {
  std::uint32_t multiplier = 1;
  std::uint32_t shift = 0;

  static Divider By(std::uint32_t divisor) {
    const auto shift = static_cast<std::uint32_t>(std::bit_width(divisor - 1));
    const std::uint64_t excess = (std::uint64_t{1} << shift) - divisor;
    return {static_cast<std::uint32_t>((excess << 32) / divisor + 1), shift};
  }
  SIMT_HOST_DEVICE std::uint32_t Quotient(std::uint32_t n) const {
    const auto high = static_cast<std::uint32_t>((std::uint64_t{n} * multiplier) >> 32);
    return (high + n) >> shift;
  }
};

/// One array of a strided loop.
struct Array {
  void* data = nullptr;
  Dims strides;  ///< in elements; 0 repeats
  std::int64_t element_size = 0;

  /// A tensor in a loop of `shape`. Tensors without gaps need not have the shape, only its size.
  static Array Of(const Tensor& tensor, const Dims& shape) {
    return {tensor.raw_data(), tensor.IsContiguous() ? ContiguousStrides(shape) : tensor.strides(),
            static_cast<std::int64_t>(SizeOf(tensor.dtype()))};
  }
};

/// A shape and the strides of arrays, simplified: dimensions of extent 1 are dropped, the others
/// sorted so that the first array (the output) is walked in memory order, and those merged that all
/// arrays walk like one. Only for loops in which the order of the elements does not matter. At
/// least one dimension is left.
struct MergedDims {
  int rank = 1;
  std::array<std::int64_t, kMaxRank> sizes = {1};
  std::array<std::array<std::int64_t, kMaxArrays>, kMaxRank> strides = {};

  MergedDims(const Dims& shape, std::initializer_list<const Dims*> array_strides) {
    const int count = static_cast<int>(array_strides.size());
    if (Numel(shape) == 0) {
      sizes[0] = 0;
      return;
    }
    MergedDims sorted;
    sorted.rank = 0;
    for (int d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1) continue;
      std::array<std::int64_t, kMaxArrays> row = {};
      std::transform(array_strides.begin(), array_strides.end(), row.begin(),
                     [d](const Dims* strides) { return (*strides)[d]; });
      // Largest stride first: of the first array, then of the others in turn. Equal ones keep their
      // order.
      int position = sorted.rank++;
      for (; position > 0 && sorted.strides[position - 1] < row; --position) {
        sorted.strides[position] = sorted.strides[position - 1];
        sorted.sizes[position] = sorted.sizes[position - 1];
      }
      sorted.strides[position] = row;
      sorted.sizes[position] = shape[d];
    }
    int last = -1;
    for (int d = 0; d < sorted.rank; ++d) {
      bool merges = last >= 0;
      for (int k = 0; merges && k < count; ++k)
        merges = strides[last][k] == sorted.strides[d][k] * sorted.sizes[d];
      if (!merges) ++last;
      sizes[last] = merges ? sizes[last] * sorted.sizes[d] : sorted.sizes[d];
      strides[last] = sorted.strides[d];
    }
    rank = std::max(1, last + 1);
  }

  std::int64_t inner_size() const { return sizes[rank - 1]; }
  std::int64_t inner_stride(int array) const { return strides[rank - 1][array]; }

 private:
  MergedDims() = default;
};

/// Positions in a simplified shape, by number, as offsets into arrays.
template <int kArrays>
struct StridedIndex {
  std::int64_t numel = 0;
  int rank = 1;
  /// Numbers fit 31 bits, and are taken apart in 32-bit arithmetic.
  bool is_narrow = true;
  std::int64_t sizes[kMaxRank] = {};
  std::int64_t strides[kMaxRank][kArrays] = {};
  Divider dividers[kMaxRank] = {};

  StridedIndex() = default;
  explicit StridedIndex(const MergedDims& dims) : numel(1), rank(dims.rank) {
    for (int d = 0; d < rank; ++d) {
      sizes[d] = dims.sizes[d];
      numel *= sizes[d];
      for (int k = 0; k < kArrays; ++k)
        strides[d][k] = dims.strides[d][k];
    }
    is_narrow = numel < std::int64_t{1} << 31;
    for (int d = 0; is_narrow && numel > 0 && d < rank; ++d)
      dividers[d] = Divider::By(static_cast<std::uint32_t>(sizes[d]));
  }

  /// The offset of position `index` in each array, in elements. Returns its innermost coordinate.
  SIMT_DEVICE std::int64_t Locate(std::int64_t index, std::int64_t (&offsets)[kArrays]) const {
    std::int64_t rest = index;
    std::int64_t inner = index;
    for (int k = 0; k < kArrays; ++k)
      offsets[k] = 0;
    for (int d = rank - 1; d > 0; --d) {
      const std::int64_t quotient =
          is_narrow
              ? static_cast<std::int64_t>(dividers[d].Quotient(static_cast<std::uint32_t>(rest)))
              : rest / sizes[d];
      const std::int64_t coordinate = rest - quotient * sizes[d];
      for (int k = 0; k < kArrays; ++k)
        offsets[k] += coordinate * strides[d][k];
      if (d == rank - 1) inner = coordinate;
      rest = quotient;
    }
    for (int k = 0; k < kArrays; ++k)
      offsets[k] += rest * strides[0][k];
    return inner;
  }
};

/// A loop over the elements of arrays in items of one element, or of `width` neighbours that vector
/// accesses reach: each array is then contiguous along the innermost dimension and its vectors are
/// aligned, or it repeats one element there. The last item of a row may be shorter.
template <int kArrays>
struct StridedLoop {
  StridedIndex<kArrays> items;
  void* data[kArrays] = {};
  int width = 1;
  /// All arrays are read or written in vectors from one end to the other.
  bool is_flat = false;
  std::int64_t inner_size = 0;
  std::int64_t inner_strides[kArrays] = {};

  /// `vector_width`: of the kernel's vector accesses; 1 for none. The first array is written.
  StridedLoop(const Dims& shape, const Array (&arrays)[kArrays], int vector_width) {
    MergedDims dims = [&]<int... k>(std::integer_sequence<int, k...>) {
      return MergedDims(shape, {&arrays[k].strides...});
    }
    (std::make_integer_sequence<int, kArrays>());
    const int inner = dims.rank - 1;
    inner_size = dims.sizes[inner];
    width = inner_size >= vector_width ? vector_width : 1;
    for (int k = 0; k < kArrays; ++k) {
      data[k] = arrays[k].data;
      inner_strides[k] = dims.strides[inner][k];
      if (!IsVector(dims, k, arrays[k], vector_width)) width = 1;
    }
    is_flat = dims.rank == 1 && width > 1 &&
              std::all_of(inner_strides, inner_strides + kArrays, [](auto x) { return x == 1; });
    dims.sizes[inner] = (inner_size + width - 1) / width;
    for (int k = 0; k < kArrays; ++k)
      dims.strides[inner][k] *= width;
    items = StridedIndex<kArrays>(dims);
  }

  template <typename T>
  SIMT_DEVICE T* At(int array, std::int64_t offset) const {
    return static_cast<T*>(data[array]) + offset;
  }

 private:
  static bool IsVector(const MergedDims& dims, int k, const Array& array, int width) {
    const std::int64_t stride = dims.inner_stride(k);
    if (stride == 0 && k > 0) return true;
    bool fits = stride == 1 && reinterpret_cast<std::uintptr_t>(array.data) %
                                       static_cast<std::size_t>(width * array.element_size) ==
                                   0;
    for (int d = 0; d < dims.rank - 1; ++d)
      fits = fits && dims.strides[d][k] % width == 0;
    return fits;
  }
};

/// A shape or strides without the entry of one dimension.
inline Dims Without(Dims dims, int dim) {
  dims.erase(dim);
  return dims;
}

}  // namespace infini_train::simt
