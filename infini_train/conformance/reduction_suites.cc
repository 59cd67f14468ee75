#include <cmath>
#include <type_traits>

#include <array>
#include <cmath>

#include "infini_train/conformance/suites.h"

namespace infini_train::conformance {
namespace {

/// `shape` after the reduced dimensions are marked: all of them are kept with extent 1.
Dims Reduced(Dims shape, const Dims& dims) {
  for (const std::int64_t dim : dims)
    shape[static_cast<int>(dim)] = 1;
  return shape;
}

enum class Over { kLast, kFirst, kAll };

Dims DimsOf(Over over, const Dims& shape) {
  if (over == Over::kFirst) return {0};
  if (over == Over::kLast) return {shape.size() - 1};
  Dims all;
  for (int d = 0; d < shape.size(); ++d)
    all.push_back(d);
  return all;
}

/// Of the terms of one result, on average: what the rounding of a sum is measured against, since
/// the sum itself may come out near 0.
double SumOfMagnitudes(const Tensor& x, const Tensor& out, bool is_mean) {
  if (!IsFloatingPoint(x.dtype()) || x.numel() == 0) return 0;
  double sum = 0;
  for (const double value : ToDoubles(x))
    sum += std::fabs(value);
  return sum / static_cast<double>(is_mean ? x.numel() : out.numel());
}

template <typename Op, Over kOver>
std::function<void()> Reduce(Trial& trial, const Dims& shape) {
  const Dims dims = DimsOf(kOver, shape);
  const Tensor x = trial.Input(shape);
  Tensor out = trial.Output(Reduced(shape, dims));
  if constexpr (std::is_same_v<Op, op::Sum> || std::is_same_v<Op, op::Mean>)
    trial.SetMagnitude(SumOfMagnitudes(x, out, std::is_same_v<Op, op::Mean>));
  return [=]() mutable { Call<Op>(out, x, dims); };
}

template <typename Op, Over kOver>
std::function<void()> Position(Trial& trial, const Dims& shape) {
  const Dims dims = DimsOf(kOver, shape);
  const Tensor x = trial.Input(shape);
  Tensor out = trial.FixedOutput(Reduced(shape, dims), DataType::kInt64);
  return [=]() mutable { Call<Op>(out, x, static_cast<int>(dims[0])); };
}

template <int kDim>
std::function<void()> CumSumCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape);
  Tensor out = trial.Output(shape);
  trial.SetMagnitude(SumOfMagnitudes(x, x, true) * static_cast<double>(shape[kDim]));
  return [=]() mutable { Call<op::CumSum>(out, x, kDim); };
}

template <typename Op>
std::function<void()> RowOp(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape, -4, 4);
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<Op>(out, x); };
}

/// `saved` is an output of the forward op: probabilities, or their logarithms.
template <typename Op, bool kLogarithm>
std::function<void()> RowBackward(Trial& trial, const Dims& shape) {
  const double typical = 1.0 / static_cast<double>(shape.back());
  const Tensor grad_y = trial.Input(shape);
  const Tensor y = kLogarithm ? trial.Input(shape, -8, 0) : trial.Input(shape, 0, 2 * typical);
  Tensor grad_x = trial.Output(shape);
  return [=]() mutable { Call<Op>(grad_x, grad_y, y); };
}

/// Roundings of a sum of n terms in any order are a random walk of n steps at most.
double RandomWalk(const Dims& shape) {
  return 10 + std::sqrt(static_cast<double>(Numel(shape)));
}

}  // namespace

void AppendReductionSuites(std::vector<OpSuite>& suites) {
  const std::vector<Dims> shapes = {{1}, {7, 33}, {5, 3, 65}, {3, 1000}, {2000, 3}};
  const Dims benchmark = {16, 4096};
  const auto reduction = [&](OpId op, std::span<const DataType> dtypes, TrialBody last,
                             TrialBody first, TrialBody all, ShapeFunction operations) {
    suites.push_back({op, dtypes, kAnyStrides, shapes, last, operations, benchmark});
    suites.push_back({op, dtypes, kAnyStrides, shapes, first, operations});
    if (all != nullptr) suites.push_back({op, dtypes, kAnyStrides, shapes, all, operations});
  };
  reduction(OpId::kSum, kArithmeticTypes, &Reduce<op::Sum, Over::kLast>,
            &Reduce<op::Sum, Over::kFirst>, &Reduce<op::Sum, Over::kAll>, RandomWalk);
  reduction(OpId::kMean, kFloatingTypes, &Reduce<op::Mean, Over::kLast>,
            &Reduce<op::Mean, Over::kFirst>, &Reduce<op::Mean, Over::kAll>, RandomWalk);
  reduction(OpId::kMax, kAllTypes, &Reduce<op::Max, Over::kLast>, &Reduce<op::Max, Over::kFirst>,
            &Reduce<op::Max, Over::kAll>, Zero);
  reduction(OpId::kMin, kAllTypes, &Reduce<op::Min, Over::kLast>, &Reduce<op::Min, Over::kFirst>,
            &Reduce<op::Min, Over::kAll>, Zero);
  reduction(OpId::kArgMax, kAllTypes, &Position<op::ArgMax, Over::kLast>,
            &Position<op::ArgMax, Over::kFirst>, nullptr, Zero);
  reduction(OpId::kArgMin, kAllTypes, &Position<op::ArgMin, Over::kLast>,
            &Position<op::ArgMin, Over::kFirst>, nullptr, Zero);
  suites.push_back({OpId::kCumSum,
                    kArithmeticTypes,
                    kAnyStrides,
                    {{7, 33}, {3, 1000}, {40, 5}},
                    &CumSumCall<1>,
                    RandomWalk,
                    benchmark});
  suites.push_back({OpId::kCumSum,
                    kArithmeticTypes,
                    kAnyStrides,
                    {{7, 33}, {300, 5}},
                    &CumSumCall<0>,
                    RandomWalk});

  std::vector<Dims> rows;
  for (const std::int64_t length : kRowLengths)
    rows.push_back({length > 10000 ? 2 : 5, length});
  rows.push_back({0, 4});
  const auto row_op = [&](OpId op, TrialBody body) {
    suites.push_back({op, kFloatingTypes, kRowMajor, rows, body, LastExtent, benchmark});
  };
  row_op(OpId::kSoftmax, &RowOp<op::Softmax>);
  row_op(OpId::kSoftmaxBackward, &RowBackward<op::SoftmaxBackward, false>);
  row_op(OpId::kLogSoftmax, &RowOp<op::LogSoftmax>);
  row_op(OpId::kLogSoftmaxBackward, &RowBackward<op::LogSoftmaxBackward, true>);
}

}  // namespace infini_train::conformance
