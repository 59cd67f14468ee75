#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "infini_train/kernels/cpu/norm_parameters.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/kernels/cpu/row.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

/// LayerNorm where centered, else RMSNorm, which has neither mean nor bias. The variance is summed
/// over differences to the mean, since the difference of two large sums would lose it. Where `sum`
/// is given, it is x + residual, and what is normalised.
template <typename T, bool centered>
void NormForward(Tensor* sum, Tensor& out, const Tensor* mean, Tensor& rstd, const Tensor& x,
                 const Tensor* residual, const Tensor& weight, const Tensor* bias, double eps) {
  using C = ComputeType<T>;
  const std::int64_t hidden = x.size(-1);
  const RowVector<C> weight_row(weight, hidden, C(1));
  const RowVector<C> bias_row(centered ? *bias : Tensor(), centered ? hidden : 0, C(0));
  const C* w = weight_row.data();
  [[maybe_unused]] const C* b = bias_row.data();
  const T* x_data = x.data<T>();
  const T* residual_data = sum != nullptr ? residual->data<T>() : nullptr;
  T* sum_data = sum != nullptr ? sum->data<T>() : nullptr;
  T* out_data = out.data<T>();
  C* mean_data = centered ? mean->data<C>() : nullptr;
  C* rstd_data = rstd.data<C>();
  const double count = static_cast<double>(hidden);
  ParallelFor(0, rstd.numel(), RowGrain(hidden), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x_row = x_data + row * hidden;
      T* out_row = out_data + row * hidden;
      if (sum_data != nullptr) {
        const T* residual_row = residual_data + row * hidden;
        T* sum_row = sum_data + row * hidden;
#pragma omp simd
        for (std::int64_t i = 0; i < hidden; ++i)
          Store(sum_row[i], C(x_row[i]) + C(residual_row[i]));
        x_row = sum_row;
      }
      C m = 0;
      if constexpr (centered) {
        const auto [sum] = Sums<C>(0, hidden, [=](std::int64_t i) { return C(x_row[i]); });
        m = static_cast<C>(sum / count);
        mean_data[row] = m;
      }
      const auto [squares] = Sums<C>(0, hidden, [=](std::int64_t i) {
        const C d = centered ? C(x_row[i]) - m : C(x_row[i]);
        return d * d;
      });
      const C r = static_cast<C>(1.0 / std::sqrt(squares / count + eps));
      rstd_data[row] = r;
#pragma omp simd
      for (std::int64_t i = 0; i < hidden; ++i) {
        if constexpr (centered) {
          Store(out_row[i], (C(x_row[i]) - m) * r * w[i] + b[i]);
        } else {
          Store(out_row[i], C(x_row[i]) * r * w[i]);
        }
      }
    }
  });
}

/// With g = grad_y * weight and n = (x - mean) * rstd:
/// grad_x = rstd * (g - mean(g) - n * mean(g * n)), without mean(g) where not centered, plus
/// grad_sum where that is given.
template <typename T, bool centered>
void NormBackward(Tensor& grad_x, Tensor& grad_weight, Tensor* grad_bias, Tensor* grad_x_sums,
                  const Tensor& grad_y, const Tensor* grad_sum, const Tensor& x,
                  const Tensor& weight, const Tensor* mean, const Tensor& rstd) {
  using C = ComputeType<T>;
  const std::int64_t hidden = x.size(-1);
  const std::int64_t rows = rstd.numel();
  const RowVector<C> weight_row(weight, hidden, C(1));
  const C* w = weight_row.data();
  const T* x_data = x.data<T>();
  const T* grad_y_data = grad_y.data<T>();
  const T* grad_sum_data = grad_sum != nullptr ? grad_sum->data<T>() : nullptr;
  T* grad_x_data = grad_x.data<T>();
  const C* mean_data = centered ? mean->data<C>() : nullptr;
  const C* rstd_data = rstd.data<C>();
  const C inverse_count = C(1) / static_cast<C>(hidden);

  const std::int64_t parts = NormParts(rows);
  const bool wants_parameters = grad_weight.defined() || (centered && grad_bias->defined());
  const bool wants_sums = grad_x_sums != nullptr && grad_x_sums->defined();
  // For each part hidden sums for the weight, for the bias, and of grad_x.
  const std::int64_t stride = (1 + (centered ? 1 : 0) + (wants_sums ? 1 : 0)) * hidden;
  const auto partials =
      wants_parameters || wants_sums
          ? std::make_unique_for_overwrite<C[]>(static_cast<std::size_t>(parts * stride))
          : nullptr;
  C* partials_data = partials.get();

  const std::int64_t part_size = rows * hidden / parts;
  ParallelFor(0, parts, RowGrain(part_size), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      C* weight_sums = nullptr;
      [[maybe_unused]] C* bias_sums = nullptr;
      C* x_sums = nullptr;
      if (partials_data != nullptr) {
        weight_sums = partials_data + part * stride;
        bias_sums = weight_sums + hidden;
        x_sums = wants_sums ? weight_sums + (stride - hidden) : nullptr;
        std::fill_n(weight_sums, stride, C(0));
      }
      for (std::int64_t row = part * rows / parts; row < (part + 1) * rows / parts; ++row) {
        const T* x_row = x_data + row * hidden;
        const T* grad_y_row = grad_y_data + row * hidden;
        T* grad_x_row = grad_x_data + row * hidden;
        const C r = rstd_data[row];
        const C m = centered ? mean_data[row] : C(0);
        const auto normalized = [=](std::int64_t i) {
          return (centered ? C(x_row[i]) - m : C(x_row[i])) * r;
        };
        const auto g = [=](std::int64_t i) { return C(grad_y_row[i]) * w[i]; };
        const auto g_n = [=](std::int64_t i) { return g(i) * normalized(i); };
        C mean_g = 0;
        C mean_g_n = 0;
        if constexpr (centered) {
          const auto [sum_g, sum_g_n] = Sums<C>(0, hidden, g, g_n);
          mean_g = static_cast<C>(sum_g) * inverse_count;
          mean_g_n = static_cast<C>(sum_g_n) * inverse_count;
        } else {
          const auto [sum_g_n] = Sums<C>(0, hidden, g_n);
          mean_g_n = static_cast<C>(sum_g_n) * inverse_count;
        }
        // grad_x may be grad_y itself, so that the parameters' sums come first.
        if (weight_sums != nullptr) {
#pragma omp simd
          for (std::int64_t i = 0; i < hidden; ++i) {
            weight_sums[i] += C(grad_y_row[i]) * normalized(i);
            if constexpr (centered) bias_sums[i] += C(grad_y_row[i]);
          }
        }
        const auto gradient = [=](std::int64_t i) {
          return r * (g(i) - mean_g - normalized(i) * mean_g_n);
        };
        if (x_sums != nullptr) {
          const T* grad_sum_row = grad_sum_data + row * hidden;
#pragma omp simd
          for (std::int64_t i = 0; i < hidden; ++i) {
            const C sum = C(grad_sum_row[i]) + gradient(i);
            x_sums[i] += sum;
            Store(grad_x_row[i], sum);
          }
        } else if (grad_sum_data == nullptr) {
#pragma omp simd
          for (std::int64_t i = 0; i < hidden; ++i)
            Store(grad_x_row[i], gradient(i));
        } else {
          const T* grad_sum_row = grad_sum_data + row * hidden;
#pragma omp simd
          for (std::int64_t i = 0; i < hidden; ++i)
            Store(grad_x_row[i], C(grad_sum_row[i]) + gradient(i));
        }
      }
    }
  });
  if (partials_data == nullptr) return;
  SumParts(grad_weight, partials_data, parts, stride);
  if (wants_sums) SumParts(*grad_x_sums, partials_data + (stride - hidden), parts, stride);
  if constexpr (centered) SumParts(*grad_bias, partials_data + hidden, parts, stride);
}

void LayerNorm(const KernelContext&, Tensor& out, Tensor& mean, Tensor& rstd, const Tensor& x,
               const Tensor& weight, const Tensor& bias, double eps) {
  DispatchFloating("LayerNorm", x.dtype(), [&](auto tag) {
    NormForward<typename decltype(tag)::type, true>(nullptr, out, &mean, rstd, x, nullptr, weight,
                                                    &bias, eps);
  });
}

void AddLayerNorm(const KernelContext&, Tensor& sum, Tensor& out, Tensor& mean, Tensor& rstd,
                  const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                  double eps) {
  DispatchFloating("AddLayerNorm", x.dtype(), [&](auto tag) {
    NormForward<typename decltype(tag)::type, true>(&sum, out, &mean, rstd, x, &residual, weight,
                                                    &bias, eps);
  });
}

void LayerNormBackward(const KernelContext&, Tensor& grad_x, Tensor& grad_weight, Tensor& grad_bias,
                       const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                       const Tensor& mean, const Tensor& rstd) {
  DispatchFloating("LayerNormBackward", x.dtype(), [&](auto tag) {
    NormBackward<typename decltype(tag)::type, true>(grad_x, grad_weight, &grad_bias, nullptr,
                                                     grad_y, nullptr, x, weight, &mean, rstd);
  });
}

void AddLayerNormBackward(const KernelContext&, Tensor& grad_x, Tensor& grad_weight,
                          Tensor& grad_bias, Tensor& grad_x_sums, const Tensor& grad_y,
                          const Tensor& grad_sum, const Tensor& sum, const Tensor& weight,
                          const Tensor& mean, const Tensor& rstd) {
  DispatchFloating("AddLayerNormBackward", sum.dtype(), [&](auto tag) {
    NormBackward<typename decltype(tag)::type, true>(grad_x, grad_weight, &grad_bias, &grad_x_sums,
                                                     grad_y, &grad_sum, sum, weight, &mean, rstd);
  });
}

void RmsNorm(const KernelContext&, Tensor& out, Tensor& rstd, const Tensor& x, const Tensor& weight,
             double eps) {
  DispatchFloating("RmsNorm", x.dtype(), [&](auto tag) {
    NormForward<typename decltype(tag)::type, false>(nullptr, out, nullptr, rstd, x, nullptr,
                                                     weight, nullptr, eps);
  });
}

void AddRmsNorm(const KernelContext&, Tensor& sum, Tensor& out, Tensor& rstd, const Tensor& x,
                const Tensor& residual, const Tensor& weight, double eps) {
  DispatchFloating("AddRmsNorm", x.dtype(), [&](auto tag) {
    NormForward<typename decltype(tag)::type, false>(&sum, out, nullptr, rstd, x, &residual, weight,
                                                     nullptr, eps);
  });
}

void RmsNormBackward(const KernelContext&, Tensor& grad_x, Tensor& grad_weight,
                     const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                     const Tensor& rstd) {
  DispatchFloating("RmsNormBackward", x.dtype(), [&](auto tag) {
    NormBackward<typename decltype(tag)::type, false>(grad_x, grad_weight, nullptr, nullptr, grad_y,
                                                      nullptr, x, weight, nullptr, rstd);
  });
}

void AddRmsNormBackward(const KernelContext&, Tensor& grad_x, Tensor& grad_weight,
                        const Tensor& grad_y, const Tensor& grad_sum, const Tensor& sum,
                        const Tensor& weight, const Tensor& rstd) {
  DispatchFloating("AddRmsNormBackward", sum.dtype(), [&](auto tag) {
    NormBackward<typename decltype(tag)::type, false>(grad_x, grad_weight, nullptr, nullptr, grad_y,
                                                      &grad_sum, sum, weight, nullptr, rstd);
  });
}

}  // namespace

REGISTER_KERNEL(kCPU, LayerNorm, &LayerNorm);
REGISTER_KERNEL(kCPU, LayerNormBackward, &LayerNormBackward);
REGISTER_KERNEL(kCPU, RmsNorm, &RmsNorm);
REGISTER_KERNEL(kCPU, RmsNormBackward, &RmsNormBackward);
REGISTER_KERNEL(kCPU, AddLayerNorm, &AddLayerNorm);
REGISTER_KERNEL(kCPU, AddLayerNormBackward, &AddLayerNormBackward);
REGISTER_KERNEL(kCPU, AddRmsNorm, &AddRmsNorm);
REGISTER_KERNEL(kCPU, AddRmsNormBackward, &AddRmsNormBackward);

}  // namespace infini_train::cpu
