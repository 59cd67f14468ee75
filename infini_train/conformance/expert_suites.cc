#include <algorithm>
#include <numeric>

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
}

}  // namespace infini_train::conformance
