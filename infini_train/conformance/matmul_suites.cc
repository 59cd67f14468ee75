#include <algorithm>
#include <array>
#include <cmath>

#include "infini_train/conformance/suites.h"

namespace infini_train::conformance {
namespace {

// Shapes are [batch, m, n, k], or one product of batch times m rows.

template <bool kBias>
std::function<void()> GemmCall(Trial& trial, const Dims& shape) {
  const auto [batch, m, n, k] = std::array{shape[0], shape[1], shape[2], shape[3]};
  const Tensor a = trial.Input({batch, m, k});
  const Tensor b = trial.Input({batch, k, n});
  const Tensor bias = kBias ? trial.Input({n}) : Tensor();
  Tensor out = trial.Output({batch, m, n});
  return [=]() mutable { Call<op::Gemm>(out, a, b, bias, false); };
}

std::function<void()> GemmAccumulate(Trial& trial, const Dims& shape) {
  const auto [batch, m, n, k] = std::array{shape[0], shape[1], shape[2], shape[3]};
  const Tensor a = trial.Input({batch, m, k});
  const Tensor b = trial.Input({batch, k, n});
  Tensor out = trial.StatInOut({batch, m, n});
  return [=]() mutable { Call<op::Gemm>(out, a, b, Tensor(), true); };
}

double GemmFlops(const Dims& shape) {
  return 2.0 * static_cast<double>(Numel(shape));
}

std::function<void()> GemmGeluCall(Trial& trial, const Dims& shape) {
  const auto [m, n, k] = std::array{shape[0] * shape[1], shape[2], shape[3]};
  const Tensor a = trial.Input({m, k});
  const Tensor b = trial.Input({k, n});
  const Tensor bias = trial.Input({n});
  Tensor out = trial.Output({m, n});
  Tensor pre = trial.Output({m, n});
  return [=]() mutable { Call<op::GemmGelu>(out, pre, a, b, bias); };
}

std::function<void()> GemmGeluBackwardCall(Trial& trial, const Dims& shape) {
  const auto [m, n, k] = std::array{shape[0] * shape[1], shape[2], shape[3]};
  const Tensor a = trial.Input({m, k});
  const Tensor b = trial.Input({k, n});
  const Tensor pre = trial.Input({m, n}, -4, 4);
  Tensor out = trial.Output({m, n});
  Tensor column_sums = trial.Output({n});
  trial.SetMagnitude(std::sqrt(static_cast<double>(k * m)));
  return [=]() mutable { Call<op::GemmGeluBackward>(out, column_sums, a, b, pre); };
}

/// A weight's gradient, float32 or wider, from transposed gradients and activations.
template <bool kAccumulate>
std::function<void()> GemmRowSumsCall(Trial& trial, const Dims& shape) {
  const auto [m, n, k] = std::array{shape[0] * shape[1], shape[2], shape[3]};
  const Tensor grad = trial.Input({k, m});
  const Tensor a = grad.AsStrided({m, k}, {1, std::max<std::int64_t>(m, 1)}, grad.offset());
  const Tensor b = trial.Input({k, n});
  Tensor out = kAccumulate ? trial.StatInOut({m, n}) : trial.Output({m, n});
  Tensor row_sums = kAccumulate ? trial.StatOutput({m}) : trial.Output({m});
  trial.SetMagnitude(std::sqrt(static_cast<double>(k)));
  return [=]() mutable { Call<op::GemmRowSums>(out, row_sums, a, b, kAccumulate); };
}

}  // namespace

void AppendMatmulSuites(std::vector<OpSuite>& suites) {
  const std::vector<Dims> products = {{1, 1, 1, 1},    {1, 5, 7, 3},     {2, 33, 65, 17},
                                      {1, 64, 64, 64}, {3, 1, 100, 130}, {1, 70, 1, 40},
                                      {1, 4, 5, 0}};
  const Dims benchmark = {1, 64, 256, 256};
  suites.push_back({OpId::kGemm, kFloatingTypes, kRowMajor, products, &GemmCall<false>, LastExtent,
                    benchmark, GemmFlops});
  suites.push_back(
      {OpId::kGemm, kFloatingTypes, kContiguousOnly, products, &GemmCall<true>, LastExtent});
  suites.push_back(
      {OpId::kGemm, kFloatingTypes, kContiguousOnly, products, &GemmAccumulate, LastExtent});

  const auto fused = [&](OpId op, std::span<const Layout> layouts, TrialBody body,
                         const Dims& measured) {
    suites.push_back({.op = op,
                      .dtypes = kFloatingTypes,
                      .layouts = layouts,
                      .shapes = products,
                      .body = body,
                      .operations = LastExtent,
                      .benchmark_shape = measured,
                      .flops = GemmFlops,
                      .rounds_intermediates = true});
  };
  fused(OpId::kGemmGelu, kRowMajor, &GemmGeluCall, benchmark);
  fused(OpId::kGemmGeluBackward, kRowMajor, &GemmGeluBackwardCall, benchmark);
  fused(OpId::kGemmRowSums, kRowMajor, &GemmRowSumsCall<true>, benchmark);
  fused(OpId::kGemmRowSums, kContiguousOnly, &GemmRowSumsCall<false>, {});
}

}  // namespace infini_train::conformance
