#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <memory>

#include "infini_train/core/error.h"
#include "infini_train/kernels/cpu/norm_parameters.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/kernels/cpu/row.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

/// Heads of positions in memory, numbered as a row-major [B, T, H] numbers them: as they lie in a
/// packed projection.
template <typename T>
struct Heads {
  Heads(const char* op, const char* name, const Tensor& tensor)
      : data(tensor.data<T>()),
        batch_stride(tensor.strides()[0]),
        head_stride(tensor.strides()[1]),
        position_stride(tensor.strides()[2]),
        heads(tensor.size(1)),
        positions(tensor.size(2)) {
    if (tensor.size(3) > 1 && tensor.strides()[3] != 1) {
      throw Error(fmt::format("{}: expected last stride 1 of {}, got strides {}", op, name,
                              tensor.strides().ToString()));
    }
  }

  std::int64_t Position(std::int64_t i) const { return i / heads % positions; }
  T* operator[](std::int64_t i) const {
    return data + i / heads / positions * batch_stride + i % heads * head_stride +
           Position(i) * position_stride;
  }

  T* data;
  std::int64_t batch_stride, head_stride, position_stride;
  std::int64_t heads, positions;
};

/// Rows of cosines or sines by position.
template <typename C>
struct Angles {
  explicit Angles(const Tensor& tensor) : data(tensor.data<C>()), stride(tensor.strides()[0]) {}
  const C* operator[](std::int64_t position) const { return data + position * stride; }

  const C* data;
  std::int64_t stride;
};

/// rstd [B, H, T], contiguous, by the numbers of Heads.
template <typename C, typename T>
C& StatisticOf(C* rstd, const Heads<T>& heads, std::int64_t i) {
  const std::int64_t batch = i / heads.heads / heads.positions;
  return rstd[(batch * heads.heads + i % heads.heads) * heads.positions + heads.Position(i)];
}

template <typename T>
void Forward(Tensor& out, Tensor& rstd, const Tensor& x, const Tensor& weight, const Tensor& cos,
             const Tensor& sin, double eps) {
  using C = ComputeType<T>;
  const std::int64_t size = x.size(3);
  const std::int64_t pairs = size / 2;
  const RowVector<C> weight_row(weight, size, C(1));
  const C* w = weight_row.data();
  const Heads<T> source("NormRotary", "x", x);
  const Heads<T> target("NormRotary", "out", out);
  const Angles<C> cosines(cos);
  const Angles<C> sines(sin);
  C* rstd_data = rstd.data<C>();
  ParallelFor(0, rstd.numel(), RowGrain(size), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* x_row = source[i];
      T* out_row = target[i];
      const C* c = cosines[source.Position(i)];
      const C* s = sines[source.Position(i)];
      const auto [squares] =
          Sums<C>(0, size, [=](std::int64_t j) { return C(x_row[j]) * C(x_row[j]); });
      const C r = static_cast<C>(1.0 / std::sqrt(squares / static_cast<double>(size) + eps));
      StatisticOf(rstd_data, source, i) = r;
#pragma omp simd
      for (std::int64_t j = 0; j < pairs; ++j) {
        const C a = C(x_row[j]) * r * w[j];
        const C b = C(x_row[j + pairs]) * r * w[j + pairs];
        Store(out_row[j], a * c[j] - b * s[j]);
        Store(out_row[j + pairs], a * s[j] + b * c[j]);
      }
    }
  });
}

/// With the gradient g of the norm's result, which is grad_y rotated backwards, and n = x * rstd:
/// grad_x = rstd * (g * weight - n * mean(g * weight * n)), grad_weight = sum of g * n.
template <typename T>
void Backward(Tensor& grad_x, Tensor& grad_weight, const Tensor& grad_y, const Tensor& x,
              const Tensor& weight, const Tensor& rstd, const Tensor& cos, const Tensor& sin) {
  using C = ComputeType<T>;
  const std::int64_t size = x.size(3);
  const std::int64_t pairs = size / 2;
  const std::int64_t rows = rstd.numel();
  const RowVector<C> weight_row(weight, size, C(1));
  const C* w = weight_row.data();
  const Heads<T> values("NormRotaryBackward", "x", x);
  const Heads<T> grads("NormRotaryBackward", "grad_y", grad_y);
  const Heads<T> target("NormRotaryBackward", "grad_x", grad_x);
  const Angles<C> cosines(cos);
  const Angles<C> sines(sin);
  const C* rstd_data = rstd.data<C>();
  const std::int64_t parts = NormParts(rows);
  const auto partials = std::make_unique<C[]>(static_cast<std::size_t>(parts * size));
  C* partials_data = partials.get();
  ParallelFor(0, parts, RowGrain(rows * size / parts), [=](std::int64_t begin, std::int64_t end) {
    const auto buffer = std::make_unique_for_overwrite<C[]>(static_cast<std::size_t>(size));
    C* g = buffer.get();
    for (std::int64_t part = begin; part < end; ++part) {
      C* sums = partials_data + part * size;
      for (std::int64_t i = part * rows / parts; i < (part + 1) * rows / parts; ++i) {
        const T* x_row = values[i];
        const T* grad_row = grads[i];
        T* target_row = target[i];
        const C* c = cosines[values.Position(i)];
        const C* s = sines[values.Position(i)];
        const C r = StatisticOf(rstd_data, values, i);
#pragma omp simd
        for (std::int64_t j = 0; j < pairs; ++j) {
          const C a = C(grad_row[j]);
          const C b = C(grad_row[j + pairs]);
          g[j] = a * c[j] + b * s[j];
          g[j + pairs] = b * c[j] - a * s[j];
        }
        const auto [sum] =
            Sums<C>(0, size, [=](std::int64_t j) { return g[j] * w[j] * (C(x_row[j]) * r); });
        const C mean = static_cast<C>(sum / static_cast<double>(size));
#pragma omp simd
        for (std::int64_t j = 0; j < size; ++j) {
          const C n = C(x_row[j]) * r;
          sums[j] += g[j] * n;
          Store(target_row[j], r * (g[j] * w[j] - n * mean));
        }
      }
    }
  });
  SumParts(grad_weight, partials_data, parts, size);
}

void NormRotary(const KernelContext&, Tensor& out, Tensor& rstd, const Tensor& x,
                const Tensor& weight, const Tensor& cos, const Tensor& sin, double eps) {
  DispatchFloating("NormRotary", x.dtype(), [&](auto tag) {
    Forward<typename decltype(tag)::type>(out, rstd, x, weight, cos, sin, eps);
  });
}

void NormRotaryBackward(const KernelContext&, Tensor& grad_x, Tensor& grad_weight,
                        const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                        const Tensor& rstd, const Tensor& cos, const Tensor& sin) {
  DispatchFloating("NormRotaryBackward", x.dtype(), [&](auto tag) {
    Backward<typename decltype(tag)::type>(grad_x, grad_weight, grad_y, x, weight, rstd, cos, sin);
  });
}

}  // namespace

REGISTER_KERNEL(kCPU, NormRotary, &NormRotary);
REGISTER_KERNEL(kCPU, NormRotaryBackward, &NormRotaryBackward);

}  // namespace infini_train::cpu
