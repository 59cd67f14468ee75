#include <limits>
#include <vector>

#include "infini_train/conformance/suites.h"

namespace infini_train::conformance {
namespace {

/// Sizes of several parameters: one element, odd tails, and the given number.
std::vector<Dims> ParameterShapes(const Dims& shape) {
  return {{1}, {3, 11}, {shape[0]}, {0}, {129}};
}

std::function<void()> GlobalNormCall(Trial& trial, const Dims& shape) {
  std::vector<Tensor> xs;
  for (const Dims& parameter : ParameterShapes(shape))
    xs.push_back(trial.Input(parameter));
  Tensor norm = trial.FixedOutput({}, DataType::kFloat32);
  return [=]() mutable { Call<op::GlobalNorm>(norm, TensorList(xs)); };
}

std::function<void()> ScaleAllCall(Trial& trial, const Dims& shape) {
  std::vector<Tensor> xs;
  for (const Dims& parameter : ParameterShapes(shape))
    xs.push_back(trial.InOut(parameter));
  const Tensor factor = trial.FixedValues({}, DataType::kFloat32, {0.375});
  return [=]() mutable { Call<op::ScaleAll>(MutableTensorList(xs), factor); };
}

/// The tensors of an optimizer step.
struct Step {
  std::vector<Tensor> params, grads, first, second, masters;
};
Step MakeStep(Trial& trial, const Dims& shape) {
  Step step;
  for (const Dims& parameter : ParameterShapes(shape)) {
    step.params.push_back(trial.InOut(parameter));
    step.grads.push_back(trial.Input(parameter));
    step.first.push_back(trial.StatInOut(parameter, -0.1, 0.1));
    step.second.push_back(trial.StatInOut(parameter, 0.01, 0.1));
    const Tensor master = trial.Master(step.params.back());
    if (master.defined()) step.masters.push_back(master);
  }
  return step;
}

/// The gradient factor of a step; with one that is not finite, nothing must change.
constexpr double kHalf = 0.5;
constexpr double kNotFinite = std::numeric_limits<double>::infinity();

template <const double& factor>
std::function<void()> AdamWCall(Trial& trial, const Dims& shape) {
  Step step = MakeStep(trial, shape);
  const Tensor scalars = trial.FixedValues({4}, DataType::kFloat64, {1e-2, 0.19, 0.002, factor});
  return [=]() mutable {
    Call<op::AdamW>(MutableTensorList(step.params), TensorList(step.grads),
                    MutableTensorList(step.first), MutableTensorList(step.second),
                    MutableTensorList(step.masters), scalars, AdamWParams{});
  };
}

template <const double& factor>
std::function<void()> SgdCall(Trial& trial, const Dims& shape) {
  Step step = MakeStep(trial, shape);
  const Tensor scalars = trial.FixedValues({2}, DataType::kFloat64, {1e-2, factor});
  const SgdParams hyper{.momentum = 0.9, .weight_decay = 0.01, .nesterov = true};
  return [=]() mutable {
    Call<op::Sgd>(MutableTensorList(step.params), TensorList(step.grads),
                  MutableTensorList(step.first), MutableTensorList(step.masters), scalars, hyper);
  };
}

}  // namespace

void AppendOptimizerSuites(std::vector<OpSuite>& suites) {
  const auto optimizer = [&](OpId op, TrialBody body, ShapeFunction operations, Dims benchmark) {
    suites.push_back(
        {op, kFloatingTypes, kRowMajor, {{1}, {1000}, {70000}}, body, operations, benchmark});
  };
  const Dims measured = {65536};
  optimizer(OpId::kGlobalNorm, &GlobalNormCall, Five, measured);
  optimizer(OpId::kScaleAll, &ScaleAllCall, One, measured);
  optimizer(OpId::kAdamW, &AdamWCall<kHalf>, Ten, measured);
  optimizer(OpId::kAdamW, &AdamWCall<kNotFinite>, Zero, {});
  optimizer(OpId::kSgd, &SgdCall<kHalf>, Ten, measured);
  optimizer(OpId::kSgd, &SgdCall<kNotFinite>, Zero, {});
}

}  // namespace infini_train::conformance
