#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "infini_train/kernels/cpu/math.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/kernels/cpu/row.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

/// Calls `body(offset, size)` for each row of the last dimension, in parallel.
template <typename Body>
void ForEachRow(const Tensor& x, const Body& body) {
  if (x.numel() == 0) return;
  const std::int64_t size = x.rank() == 0 ? 1 : x.size(-1);
  ParallelFor(0, x.numel() / size, RowGrain(size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      body(row * size, size);
  });
}

/// What to subtract before exponentials: the largest element, but 0 in a row of -inf only, where
/// the differences would be NaN.
template <typename C, typename Value>
C Shift(std::int64_t size, const Value& value) {
  const C largest = Largest<C>(0, size, value);
  return largest == -std::numeric_limits<C>::infinity() ? C(0) : largest;
}

template <typename T>
void SoftmaxRows(Tensor& out, const Tensor& x) {
  using C = ComputeType<T>;
  const T* x_data = x.data<T>();
  T* out_data = out.data<T>();
  ForEachRow(x, [=](std::int64_t offset, std::int64_t size) {
    const T* x_row = x_data + offset;
    T* out_row = out_data + offset;
    const C shift = Shift<C>(size, [=](std::int64_t i) { return C(x_row[i]); });
    if constexpr (std::is_same_v<T, C>) {
      const auto [sum] = Sums<C>(0, size, [=](std::int64_t i) {
        const C e = Exp(x_row[i] - shift);
        out_row[i] = e;
        return e;
      });
      const C factor = sum == 0 ? C(0) : static_cast<C>(1 / sum);
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i)
        out_row[i] *= factor;
    } else {
      // Computed twice, since a narrow output must not be rounded before it is scaled.
      const auto exponential = [=](std::int64_t i) { return Exp(C(x_row[i]) - shift); };
      const auto [sum] = Sums<C>(0, size, exponential);
      const C factor = sum == 0 ? C(0) : static_cast<C>(1 / sum);
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i)
        Store(out_row[i], exponential(i) * factor);
    }
  });
}

template <typename T>
void LogSoftmaxRows(Tensor& out, const Tensor& x) {
  using C = ComputeType<T>;
  const T* x_data = x.data<T>();
  T* out_data = out.data<T>();
  ForEachRow(x, [=](std::int64_t offset, std::int64_t size) {
    const T* x_row = x_data + offset;
    T* out_row = out_data + offset;
    const C shift = Shift<C>(size, [=](std::int64_t i) { return C(x_row[i]); });
    const auto [sum] = Sums<C>(0, size, [=](std::int64_t i) { return Exp(C(x_row[i]) - shift); });
    const C log_sum = sum == 0 ? C(0) : static_cast<C>(std::log(sum));
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i)
      Store(out_row[i], (C(x_row[i]) - shift) - log_sum);
  });
}

template <typename T>
void SoftmaxBackwardRows(Tensor& grad_x, const Tensor& grad_y, const Tensor& y) {
  using C = ComputeType<T>;
  const T* y_data = y.data<T>();
  const T* grad_y_data = grad_y.data<T>();
  T* grad_x_data = grad_x.data<T>();
  ForEachRow(y, [=](std::int64_t offset, std::int64_t size) {
    const T* y_row = y_data + offset;
    const T* grad_y_row = grad_y_data + offset;
    T* grad_x_row = grad_x_data + offset;
    const auto [sum] =
        Sums<C>(0, size, [=](std::int64_t i) { return C(grad_y_row[i]) * C(y_row[i]); });
    const C dot = static_cast<C>(sum);
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i)
      Store(grad_x_row[i], C(y_row[i]) * (C(grad_y_row[i]) - dot));
  });
}

template <typename T>
void LogSoftmaxBackwardRows(Tensor& grad_x, const Tensor& grad_y, const Tensor& y) {
  using C = ComputeType<T>;
  const T* y_data = y.data<T>();
  const T* grad_y_data = grad_y.data<T>();
  T* grad_x_data = grad_x.data<T>();
  ForEachRow(y, [=](std::int64_t offset, std::int64_t size) {
    const T* y_row = y_data + offset;
    const T* grad_y_row = grad_y_data + offset;
    T* grad_x_row = grad_x_data + offset;
    const auto [total] = Sums<C>(0, size, [=](std::int64_t i) { return C(grad_y_row[i]); });
    const C sum = static_cast<C>(total);
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i)
      Store(grad_x_row[i], C(grad_y_row[i]) - Exp(C(y_row[i])) * sum);
  });
}

void Softmax(const KernelContext&, Tensor& out, const Tensor& x) {
  DispatchFloating("Softmax", x.dtype(),
                   [&](auto tag) { SoftmaxRows<typename decltype(tag)::type>(out, x); });
}

void LogSoftmax(const KernelContext&, Tensor& out, const Tensor& x) {
  DispatchFloating("LogSoftmax", x.dtype(),
                   [&](auto tag) { LogSoftmaxRows<typename decltype(tag)::type>(out, x); });
}

void SoftmaxBackward(const KernelContext&, Tensor& grad_x, const Tensor& grad_y, const Tensor& y) {
  DispatchFloating("SoftmaxBackward", y.dtype(), [&](auto tag) {
    SoftmaxBackwardRows<typename decltype(tag)::type>(grad_x, grad_y, y);
  });
}

void LogSoftmaxBackward(const KernelContext&, Tensor& grad_x, const Tensor& grad_y,
                        const Tensor& y) {
  DispatchFloating("LogSoftmaxBackward", y.dtype(), [&](auto tag) {
    LogSoftmaxBackwardRows<typename decltype(tag)::type>(grad_x, grad_y, y);
  });
}

}  // namespace

REGISTER_KERNEL(kCPU, Softmax, &Softmax);
REGISTER_KERNEL(kCPU, SoftmaxBackward, &SoftmaxBackward);
REGISTER_KERNEL(kCPU, LogSoftmax, &LogSoftmax);
REGISTER_KERNEL(kCPU, LogSoftmaxBackward, &LogSoftmaxBackward);

}  // namespace infini_train::cpu
