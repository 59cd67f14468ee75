#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "infini_train/core/tensor.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/kernels/cpu/row.h"

/// Weights of norms and the sums that are their gradients.
namespace infini_train::cpu {

/// The elements of an optional vector as C: the tensor's memory where the types agree, else a
/// converted copy, or `value` everywhere where the tensor is undefined.
template <typename C>
class RowVector {
 public:
  RowVector(const Tensor& tensor, std::int64_t size, C value) {
    if (tensor.defined() && tensor.dtype() == DataTypeOf<C>()) {
      data_ = tensor.data<C>();
      return;
    }
    copy_ = std::make_unique_for_overwrite<C[]>(static_cast<std::size_t>(size));
    data_ = copy_.get();
    if (!tensor.defined()) {
      std::fill_n(copy_.get(), size, value);
      return;
    }
    DispatchFloating("the weight of a norm", tensor.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* source = tensor.data<T>();
      for (std::int64_t i = 0; i < size; ++i)
        copy_[i] = static_cast<C>(source[i]);
    });
  }

  const C* data() const { return data_; }

 private:
  std::unique_ptr<C[]> copy_;
  const C* data_ = nullptr;
};

/// Rows of a parameter gradient are summed in parts of this many at least, in at most kMaxParts
/// parts: numbers of the problem and not of the threads, so that the order of the sum is too.
inline constexpr std::int64_t kMinPartRows = 16;
inline constexpr std::int64_t kMaxParts = 64;

constexpr std::int64_t NormParts(std::int64_t rows) {
  return std::clamp<std::int64_t>((rows + kMinPartRows - 1) / kMinPartRows, 1, kMaxParts);
}

/// gradient[i] = sum over parts of partial sums, `stride` apart.
template <typename C>
void SumParts(Tensor& gradient, const C* partials, std::int64_t parts, std::int64_t stride) {
  if (!gradient.defined()) return;
  DispatchFloating("the weight gradient of a norm", gradient.dtype(), [&](auto tag) {
    using W = typename decltype(tag)::type;
    W* data = gradient.data<W>();
    ParallelFor(0, gradient.numel(), RowGrain(parts), [=](std::int64_t begin, std::int64_t end) {
      constexpr std::int64_t kColumns = 128;
      for (std::int64_t first = begin; first < end; first += kColumns) {
        const std::int64_t columns = std::min(kColumns, end - first);
        double sums[kColumns] = {};
        for (std::int64_t part = 0; part < parts; ++part) {
          const C* row = partials + part * stride + first;
#pragma omp simd
          for (std::int64_t i = 0; i < columns; ++i)
            sums[i] += row[i];
        }
        for (std::int64_t i = 0; i < columns; ++i)
          Store(data[first + i], static_cast<ComputeType<W>>(sums[i]));
      }
    });
  });
}

}  // namespace infini_train::cpu
