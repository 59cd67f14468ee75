#include "infini_train/ops/fp8.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/fp8_composition.h"

namespace infini_train::cpu {
namespace {

// Rows and columns that are quantised at a time, so that both copies are written while in cache.
constexpr std::int64_t kTile = 64;

struct Matrix {
  std::int64_t rows, columns;
};

Matrix MatrixOf(const Tensor& x) {
  return {x.size(0), x.size(1)};
}

std::uint8_t* CodesOf(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<std::uint8_t>() : nullptr;
}

/// Quantises rows [begin, end) and returns the largest magnitude's bits: as numbers without a sign
/// order like their bits, with NaN above all.
template <typename T, typename F>
std::int32_t QuantizeRows(std::uint8_t* out, std::uint8_t* transposed, const T* x, Matrix shape,
                          float scale, std::int64_t begin, std::int64_t end) {
  std::uint8_t codes[kTile][kTile];
  std::int32_t largest = 0;
  for (std::int64_t column = 0; column < shape.columns; column += kTile) {
    const std::int64_t width = std::min(kTile, shape.columns - column);
    for (std::int64_t row = begin; row < end; ++row) {
      const T* values = x + row * shape.columns + column;
      std::uint8_t* to = codes[row - begin];
#pragma omp simd reduction(max : largest)
      for (std::int64_t c = 0; c < width; ++c) {
        const auto value = static_cast<float>(values[c]);
        largest = std::max(largest, std::bit_cast<std::int32_t>(value) & 0x7FFFFFFF);
        to[c] = F(value * scale).bits;
      }
      if (out != nullptr) std::copy_n(to, width, out + row * shape.columns + column);
    }
    if (transposed == nullptr) continue;
    for (std::int64_t c = 0; c < width; ++c) {
      std::uint8_t* to = transposed + (column + c) * shape.rows + begin;
      for (std::int64_t row = begin; row < end; ++row)
        *to++ = codes[row - begin][c];
    }
  }
  return largest;
}

template <typename T, typename F>
void Quantize(Tensor& out, Tensor& transposed, Tensor& amax, const Tensor& x, float scale) {
  const Matrix shape = MatrixOf(x);
  std::uint8_t* codes = CodesOf(out);
  std::uint8_t* transposed_codes = CodesOf(transposed);
  std::atomic<std::int32_t> largest = 0;
  ParallelFor(0, (shape.rows + kTile - 1) / kTile, 1, [&](std::int64_t begin, std::int64_t end) {
    std::int32_t mine = 0;
    for (std::int64_t tile = begin; tile < end; ++tile) {
      mine = std::max(
          mine, QuantizeRows<T, F>(codes, transposed_codes, x.data<T>(), shape, scale, tile * kTile,
                                   std::min((tile + 1) * kTile, shape.rows)));
    }
    std::int32_t seen = largest;
    while (seen < mine && !largest.compare_exchange_weak(seen, mine)) {
    }
  });
  if (!amax.defined()) return;
  float& former = *amax.data<float>();
  former = std::bit_cast<float>(std::max(std::bit_cast<std::int32_t>(former), largest.load()));
}

template <typename T, typename S>
void SumColumns(Tensor& sums, const Tensor& x) {
  const Matrix shape = MatrixOf(x);
  const T* values = x.data<T>();
  S* out = sums.data<S>();
  ParallelFor(0, shape.columns, kTile, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> totals(static_cast<std::size_t>(end - begin));
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      const T* from = values + row * shape.columns + begin;
      for (std::int64_t c = 0; c < end - begin; ++c)
        totals[static_cast<std::size_t>(c)] += static_cast<double>(from[c]);
    }
    for (std::int64_t c = 0; c < end - begin; ++c)
      out[begin + c] =
          static_cast<S>(static_cast<ComputeType<S>>(totals[static_cast<std::size_t>(c)]));
  });
}

void Fp8Quantize(const KernelContext&, Tensor& out, Tensor& transposed, Tensor& column_sums,
                 Tensor& amax, const Tensor& x, const Tensor& scale, Fp8Format format) {
  DispatchFloating("Fp8Quantize", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    DispatchFp8(format, [&](auto format_tag) {
      using F = typename decltype(format_tag)::type;
      Quantize<T, F>(out, transposed, amax, x, scale.data<float>()[1]);
    });
    if (!column_sums.defined()) return;
    if (column_sums.dtype() == x.dtype()) {
      SumColumns<T, T>(column_sums, x);
    } else {
      SumColumns<T, float>(column_sums, x);
    }
  });
}

void Fp8QuantizeGelu(const KernelContext& context, Tensor& out, Tensor& transposed, Tensor& amax,
                     const Tensor& x, const Tensor& scale, Fp8Format format,
                     bool tanh_approximation) {
  Tensor activated = Tensor::EmptyLike(x);
  Call<op::Gelu>(activated, x, tanh_approximation);
  Tensor no_sums;
  Fp8Quantize(context, out, transposed, no_sums, amax, activated, scale, format);
}

void Fp8QuantizeGeluBackward(const KernelContext& context, Tensor& out, Tensor& transposed,
                             Tensor& column_sums, Tensor& amax, const Tensor& grad_y,
                             const Tensor& x, const Tensor& scale, Fp8Format format,
                             bool tanh_approximation) {
  Tensor grad_x = Tensor::EmptyLike(x);
  Call<op::GeluBackward>(grad_x, grad_y, x, tanh_approximation);
  Fp8Quantize(context, out, transposed, column_sums, amax, grad_x, scale, format);
}

void Fp8QuantizeNorm(const KernelContext&, Tensor& out, Tensor& transposed, Tensor& amax,
                     Tensor& sum, Tensor& mean, Tensor& rstd, const Tensor& x,
                     const Tensor& residual, const Tensor& weight, const Tensor& bias,
                     const Tensor& scale, Fp8Format format, double eps) {
  ComposeFp8QuantizeNorm(out, transposed, amax, sum, mean, rstd, x, residual, weight, bias, scale,
                         format, eps);
}

void Fp8LinearCrossEntropy(const KernelContext&, Tensor& loss, Tensor& grad_hidden,
                           Tensor& grad_weight, Tensor& amax, const Tensor& hidden,
                           const Tensor& weight, const Tensor& targets, const Tensor& hidden_scale,
                           const Tensor& weight_codes, const Tensor& weight_scale,
                           std::int64_t ignore_index, double scale) {
  ComposeFp8LinearCrossEntropy(loss, grad_hidden, grad_weight, amax, hidden, weight, targets,
                               hidden_scale, weight_codes, weight_scale, ignore_index, scale);
}

/// The numbers of codes, which bfloat16 holds exactly.
Tensor Dequantize(const Tensor& codes, Fp8Format format, const Tensor& scale) {
  Tensor numbers = Tensor::Empty(codes.shape(), DataType::kBFloat16);
  const std::uint8_t* from = codes.data<std::uint8_t>();
  BFloat16* to = numbers.data<BFloat16>();
  const float inverse = scale.data<float>()[0];
  DispatchFp8(format, [&](auto tag) {
    using F = typename decltype(tag)::type;
    ParallelFor(0, codes.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        F code;
        code.bits = from[i];
        to[i] = static_cast<float>(code) * inverse;
      }
    });
  });
  return numbers;
}

void Fp8Gemm(const KernelContext&, Tensor& out, const Tensor& a, Fp8Format a_format,
             const Tensor& a_scale, const Tensor& b, Fp8Format b_format, const Tensor& b_scale,
             const Tensor& bias, bool accumulate) {
  const Tensor left = Dequantize(a, a_format, a_scale);
  const Tensor right = Dequantize(b, b_format, b_scale);
  const std::int64_t depth = right.size(1);
  Call<op::Gemm>(out, left, right.AsStrided({depth, right.size(0)}, {1, depth}, 0), bias,
                 accumulate);
}

void Fp8UpdateScales(const KernelContext&, Tensor& scales, Tensor& amax, Tensor& history,
                     const Tensor& largest) {
  const std::int64_t length = history.size(1);
  for (std::int64_t t = 0; t < history.size(0); ++t) {
    float* row = history.data<float>() + t * length;
    float& newest = amax.data<float>()[t];
    std::copy_backward(row, row + length - 1, row + length);
    row[0] = std::isfinite(newest) ? newest : 0.0f;
    newest = 0.0f;
    const float most = *std::max_element(row, row + length);
    if (most == 0.0f) continue;
    float* scale = scales.data<float>() + t * scales.strides()[0];
    scale[1] = DelayedScale(largest.data<float>()[t], most);
    scale[0] = 1.0f / scale[1];
  }
}

}  // namespace

REGISTER_KERNEL(kCPU, Fp8Quantize, &Fp8Quantize);
REGISTER_KERNEL(kCPU, Fp8QuantizeGelu, &Fp8QuantizeGelu);
REGISTER_KERNEL(kCPU, Fp8QuantizeGeluBackward, &Fp8QuantizeGeluBackward);
REGISTER_KERNEL(kCPU, Fp8QuantizeNorm, &Fp8QuantizeNorm);
REGISTER_KERNEL(kCPU, Fp8Gemm, &Fp8Gemm);
REGISTER_KERNEL(kCPU, Fp8LinearCrossEntropy, &Fp8LinearCrossEntropy);
REGISTER_KERNEL(kCPU, Fp8UpdateScales, &Fp8UpdateScales);

}  // namespace infini_train::cpu
