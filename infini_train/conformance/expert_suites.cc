#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "infini_train/conformance/suites.h"

namespace infini_train::conformance {
namespace {

// Shapes are [tokens, experts, choices of a token, hidden size].

std::function<void()> SortCall(Trial& trial, const Dims& shape) {
  const Tensor experts = trial.Indices({shape[0], shape[2]}, shape[1]);
  Tensor rows = trial.FixedOutput({shape[0], shape[2]}, DataType::kInt64);
  Tensor counts = trial.FixedOutput({shape[1]}, DataType::kInt64);
  return [=]() mutable { Call<op::ExpertSort>(rows, counts, experts); };
}

/// A permutation of the rows, as a sort gives.
Tensor Rows(Trial& trial, const Dims& shape) {
  std::vector<double> rows(static_cast<std::size_t>(shape[0] * shape[2]));
  std::iota(rows.begin(), rows.end(), 0.0);
  const std::vector<double> keys = RandomValues(static_cast<std::int64_t>(rows.size()), 0, 1, 5);
  std::stable_sort(rows.begin(), rows.end(), [&](double a, double b) {
    return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
  });
  return trial.FixedValues({shape[0], shape[2]}, DataType::kInt64, rows);
}

template <bool kWeighted>
std::function<void()> PermuteCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input({shape[0], shape[3]});
  const Tensor rows = Rows(trial, shape);
  const Tensor weights = kWeighted ? trial.StatInput({shape[0], shape[2]}) : Tensor();
  Tensor out = trial.Output({shape[0] * shape[2], shape[3]});
  return [=]() mutable { Call<op::ExpertPermute>(out, x, rows, weights); };
}

template <bool kWeighted>
std::function<void()> UnpermuteCall(Trial& trial, const Dims& shape) {
  const Tensor y = trial.Input({shape[0] * shape[2], shape[3]});
  const Tensor rows = Rows(trial, shape);
  const Tensor weights = kWeighted ? trial.StatInput({shape[0], shape[2]}) : Tensor();
  Tensor out = trial.Output({shape[0], shape[3]});
  return [=]() mutable { Call<op::ExpertUnpermute>(out, y, rows, weights); };
}

std::function<void()> WeightsBackwardCall(Trial& trial, const Dims& shape) {
  const Tensor grad_out = trial.Input({shape[0], shape[3]});
  const Tensor y = trial.Input({shape[0] * shape[2], shape[3]});
  const Tensor rows = Rows(trial, shape);
  Tensor grad_weights = trial.StatOutput({shape[0], shape[2]});
  return [=]() mutable { Call<op::ExpertWeightsBackward>(grad_weights, grad_out, y, rows); };
}

// Shapes of products are [rows, groups, columns of a row's result, columns of a row].

/// Groups of different size, the second without a row, and a few rows that are in none.
Tensor Counts(Trial& trial, const Dims& shape) {
  std::vector<double> counts(static_cast<std::size_t>(shape[1]), 0.0);
  std::int64_t left = shape[0] - shape[0] / 16;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    if (e == 1) continue;
    const std::int64_t count = e + 1 == counts.size() ? left : (left + 1) / 2;
    counts[e] = static_cast<double>(count);
    left -= count;
  }
  return trial.FixedValues({shape[1]}, DataType::kInt64, counts);
}

/// The matrices that a tensor holds, transposed.
Tensor Transpose(const Tensor& x) {
  Dims dims = x.shape(), strides = x.strides();
  const int last = dims.size() - 1;
  std::swap(dims[last - 1], dims[last]);
  std::swap(strides[last - 1], strides[last]);
  return x.AsStrided(dims, strides, x.offset());
}

/// A layer of experts, or the gradient of its input.
template <bool kForward>
std::function<void()> GroupedGemmCall(Trial& trial, const Dims& shape) {
  const auto [rows, groups, n, k] = std::array{shape[0], shape[1], shape[2], shape[3]};
  const Tensor a = trial.Input({rows, k});
  const Tensor b = kForward ? Transpose(trial.Input({groups, n, k})) : trial.Input({groups, k, n});
  const Tensor counts = Counts(trial, shape);
  Tensor out = kForward ? trial.Output({rows, n}) : trial.InOut({rows, n});
  return [=]() mutable { Call<op::GroupedGemm>(out, a, b, counts, !kForward); };
}

/// The gradient of the experts' weights, in the type of gradients.
std::function<void()> KGroupedGemmCall(Trial& trial, const Dims& shape) {
  const auto [rows, groups, n, k] = std::array{shape[0], shape[1], shape[2], shape[3]};
  const Tensor grad = Transpose(trial.Input({rows, n}));
  const Tensor x = trial.Input({rows, k});
  const Tensor counts = Counts(trial, shape);
  Tensor out = trial.StatInOut({groups, n, k});
  return [=]() mutable { Call<op::KGroupedGemm>(out, grad, x, counts, true); };
}

double ProductFlops(const Dims& shape) {
  return 2.0 * static_cast<double>(shape[0]) * static_cast<double>(shape[2]) *
         static_cast<double>(shape[3]);
}
/// A sum over the rows.
double FirstExtent(const Dims& shape) {
  return 10 + static_cast<double>(shape[0]);
}

}  // namespace

void AppendExpertSuites(std::vector<OpSuite>& suites) {
  const std::vector<Dims> shapes = {{1, 1, 1, 1}, {33, 8, 2, 65}, {7, 64, 6, 32}, {0, 4, 2, 8}};
  const Dims benchmark = {64, 8, 2, 256};
  const auto add = [&](OpId op, std::span<const DataType> dtypes, TrialBody body,
                       ShapeFunction operations, const Dims& measured) {
    suites.push_back({op, dtypes, kRowMajor, shapes, body, operations, measured});
  };
  add(OpId::kExpertSort, kIndexTypes, &SortCall, Zero, benchmark);
  add(OpId::kExpertPermute, kFloatingTypes, &PermuteCall<false>, Zero, benchmark);
  add(OpId::kExpertPermute, kFloatingTypes, &PermuteCall<true>, One, {});
  add(OpId::kExpertUnpermute, kFloatingTypes, &UnpermuteCall<true>, Ten, benchmark);
  add(OpId::kExpertUnpermute, kFloatingTypes, &UnpermuteCall<false>, Ten, {});
  add(OpId::kExpertWeightsBackward, kFloatingTypes, &WeightsBackwardCall, LastExtent, benchmark);

  const std::vector<Dims> products = {{1, 1, 1, 1},      {33, 3, 17, 40}, {200, 4, 72, 64},
                                      {40, 17, 129, 33}, {0, 2, 8, 8},    {9, 2, 16, 0},
                                      {150, 2, 264, 136}};
  const auto product = [&](OpId op, TrialBody body, ShapeFunction operations,
                           const Dims& measured) {
    suites.push_back(
        {op, kFloatingTypes, kRowMajor, products, body, operations, measured, ProductFlops});
  };
  product(OpId::kGroupedGemm, &GroupedGemmCall<true>, LastExtent, {64, 8, 256, 256});
  product(OpId::kGroupedGemm, &GroupedGemmCall<false>, LastExtent, {});
  product(OpId::kKGroupedGemm, &KGroupedGemmCall, FirstExtent, {64, 8, 256, 256});
}

}  // namespace infini_train::conformance
