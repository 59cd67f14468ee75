// The kernels of rungs 5 to 8 for a provider as tools/new_backend.py writes it, whose device memory
// is host memory: where a vendor's kernel would be launched on context.stream, a loop runs.

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::newchip {
namespace {

/// Calls `body(index)` for each index into `shape`.
template <typename Body>
void ForEachIndex(const Dims& shape, const Body& body) {
  Dims index = Dims::Filled(shape.size(), 0);
  for (std::int64_t left = Numel(shape); left > 0; --left) {
    body(index);
    for (int d = shape.size() - 1; d >= 0 && ++index[d] == shape[d]; --d)
      index[d] = 0;
  }
}

/// The element of a tensor at an index, whatever its strides.
template <typename T>
T& At(const Tensor& x, const Dims& index) {
  T* element = x.data<T>();
  for (int d = 0; d < index.size(); ++d)
    element += index[d] * x.strides()[d];
  return *element;
}

// [begin: fill]
void Fill(const KernelContext&, Tensor& out, Scalar value) {
  DispatchAll("Fill", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    ForEachIndex(out.shape(), [&](const Dims& index) { At<T>(out, index) = value.To<T>(); });
  });
}

REGISTER_KERNEL(kPrivateUse1, Fill, &Fill);
// [end: fill]

// [begin: add]
template <typename T>
T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    // Integers wrap around; signed ones may not overflow in C++.
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return static_cast<T>(static_cast<ComputeType<T>>(a) + static_cast<ComputeType<T>>(b));
  }
}

void Add(const KernelContext&, Tensor& out, const Tensor& a, const Tensor& b) {
  DispatchAll("Add", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    ForEachIndex(out.shape(), [&](const Dims& index) {
      At<T>(out, index) = Sum<T>(At<T>(a, index), At<T>(b, index));
    });
  });
}

REGISTER_KERNEL(kPrivateUse1, Add, &Add);
// [end: add]

// [begin: matmul]
void Gemm(const KernelContext&, Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
          bool accumulate) {
  const std::int64_t inner = a.size(-1);
  const auto multiply = [&](auto in, auto result) {
    using T = typename decltype(in)::type;
    using U = typename decltype(result)::type;
    ForEachIndex(out.shape(), [&](const Dims& index) {
      const int rank = index.size();
      Dims of_a = index;
      Dims of_b = index;
      auto sum = accumulate ? static_cast<double>(At<U>(out, index)) : 0.0;
      if (bias.defined()) sum += static_cast<double>(At<T>(bias, {index[rank - 1]}));
      for (std::int64_t k = 0; k < inner; ++k) {
        of_a[rank - 1] = of_b[rank - 2] = k;
        sum += static_cast<double>(At<T>(a, of_a)) * static_cast<double>(At<T>(b, of_b));
      }
      At<U>(out, index) = static_cast<U>(static_cast<ComputeType<U>>(sum));
    });
  };
  DispatchFloating("Gemm", a.dtype(), [&](auto in) {
    DispatchFloating("Gemm", out.dtype(), [&](auto result) { multiply(in, result); });
  });
}

REGISTER_KERNEL(kPrivateUse1, Gemm, &Gemm);
// [end: matmul]

/// Element i of an optional weight or bias, of x's dtype or float32.
double Parameter(const Tensor& parameter, std::int64_t i, double otherwise) {
  if (!parameter.defined()) return otherwise;
  return DispatchFloating("LayerNorm", parameter.dtype(), [&](auto tag) {
    return static_cast<double>(At<typename decltype(tag)::type>(parameter, {i}));
  });
}

/// Writes element i of an output of any floating type.
void Write(const Tensor& out, const Dims& index, double value) {
  DispatchFloating("LayerNorm", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    At<T>(out, index) = static_cast<T>(static_cast<ComputeType<T>>(value));
  });
}

double Read(const Tensor& x, const Dims& index) {
  return DispatchFloating("LayerNorm", x.dtype(), [&](auto tag) {
    return static_cast<double>(At<typename decltype(tag)::type>(x, index));
  });
}

// [begin: layer norm]
void LayerNorm(const KernelContext&, Tensor& out, Tensor& mean, Tensor& rstd, const Tensor& x,
               const Tensor& weight, const Tensor& bias, double eps) {
  const std::int64_t hidden = x.size(1);
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < hidden; ++i)
      sum += Read(x, {row, i});
    const double m = sum / static_cast<double>(hidden);
    double squares = 0;
    for (std::int64_t i = 0; i < hidden; ++i)
      squares += (Read(x, {row, i}) - m) * (Read(x, {row, i}) - m);
    const double r = 1 / std::sqrt(squares / static_cast<double>(hidden) + eps);
    Write(mean, {row}, m);
    Write(rstd, {row}, r);
    for (std::int64_t i = 0; i < hidden; ++i) {
      const double normalised = (Read(x, {row, i}) - m) * r;
      Write(out, {row, i}, normalised * Parameter(weight, i, 1) + Parameter(bias, i, 0));
    }
  }
}

REGISTER_KERNEL(kPrivateUse1, LayerNorm, &LayerNorm);
// [end: layer norm]

// [begin: layer norm gradient]
void LayerNormBackward(const KernelContext&, Tensor& grad_x, Tensor& grad_weight, Tensor& grad_bias,
                       const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                       const Tensor& mean, const Tensor& rstd) {
  const std::int64_t hidden = x.size(1);
  std::vector<double> of_weight(static_cast<std::size_t>(hidden));
  std::vector<double> of_bias(static_cast<std::size_t>(hidden));
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    const double m = Read(mean, {row});
    const double r = Read(rstd, {row});
    double sum_g = 0;
    double sum_gn = 0;
    for (std::int64_t i = 0; i < hidden; ++i) {
      const double normalised = (Read(x, {row, i}) - m) * r;
      const double dy = Read(grad_y, {row, i});
      sum_g += dy * Parameter(weight, i, 1);
      sum_gn += dy * Parameter(weight, i, 1) * normalised;
      of_weight[static_cast<std::size_t>(i)] += dy * normalised;
      of_bias[static_cast<std::size_t>(i)] += dy;
    }
    for (std::int64_t i = 0; i < hidden; ++i) {
      const double normalised = (Read(x, {row, i}) - m) * r;
      const double g = Read(grad_y, {row, i}) * Parameter(weight, i, 1);
      Write(grad_x, {row, i},
            r * (g - (sum_g + normalised * sum_gn) / static_cast<double>(hidden)));
    }
  }
  for (std::int64_t i = 0; i < hidden; ++i) {
    if (grad_weight.defined()) Write(grad_weight, {i}, of_weight[static_cast<std::size_t>(i)]);
    if (grad_bias.defined()) Write(grad_bias, {i}, of_bias[static_cast<std::size_t>(i)]);
  }
}

REGISTER_KERNEL(kPrivateUse1, LayerNormBackward, &LayerNormBackward);
// [end: layer norm gradient]

}  // namespace
}  // namespace infini_train::newchip
