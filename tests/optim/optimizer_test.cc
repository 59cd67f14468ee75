#include "infini_train/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"
#include "tests/core/child_process.h"

namespace infini_train::optim {
namespace {

using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;
using ::testing::DoubleNear;
using ::testing::Pointwise;

constexpr int kSteps = 12;

/// One parameter in float64, as the papers write the updates.
struct Reference {
  std::vector<double> value;
  double weight_decay = 0.0;
  std::vector<double> first = {};
  std::vector<double> second = {};

  void ApplyAdamW(const std::vector<double>& grad, double lr, const AdamW::Options& o, int t) {
    first.resize(value.size());
    second.resize(value.size());
    for (std::size_t i = 0; i < value.size(); ++i) {
      value[i] -= lr * weight_decay * value[i];
      first[i] = o.beta1 * first[i] + (1 - o.beta1) * grad[i];
      second[i] = o.beta2 * second[i] + (1 - o.beta2) * grad[i] * grad[i];
      const double m = first[i] / (1 - std::pow(o.beta1, t));
      const double v = second[i] / (1 - std::pow(o.beta2, t));
      value[i] -= lr * m / (std::sqrt(v) + o.eps);
    }
  }

  void ApplySgd(const std::vector<double>& grad, double lr, const Sgd::Options& o, int t) {
    first.resize(value.size());
    for (std::size_t i = 0; i < value.size(); ++i) {
      double g = grad[i] + weight_decay * value[i];
      if (o.momentum != 0) {
        first[i] = t == 1 ? g : o.momentum * first[i] + (1 - o.dampening) * g;
        g = o.nesterov ? g + o.momentum * first[i] : first[i];
      }
      value[i] -= lr * g;
    }
  }
};

/// Parameters in two groups, of which "idle" gets no gradient in every third step.
class OptimizerTest : public DeviceTest {
 protected:
  void MakeParameters(DataType dtype) {
    const auto add = [&](ParameterGroup& group, const std::string& name, const Dims& shape) {
      const Tensor parameter = MakeTensor(
          device(), dtype, shape, RandomValues(Numel(shape), -1, 1, references_.size() + 1));
      parameter.set_requires_grad();
      group.parameters.emplace_back(name, parameter);
      parameters_.push_back(parameter);
      references_.push_back({ToDoubles(parameter), group.weight_decay});
    };
    ParameterGroup decayed{{}, 0.1};
    ParameterGroup plain{{}, 0.0};
    add(decayed, "matrix", {3, 5});
    add(decayed, "idle", {7});
    add(plain, "vector", {11});
    add(plain, "scalar", {});
    add(plain, "empty", {0});
    groups_ = {decayed, plain};
  }

  using Update = std::function<void(Reference&, const std::vector<double>&, double lr, int t)>;

  void Run(Optimizer& optimizer, double tolerance, const Update& update) {
    for (int t = 1; t <= kSteps; ++t) {
      const double lr = 0.05 / t;
      optimizer.ZeroGrad();
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (i == 1 && t % 3 == 2) continue;
        const Tensor& p = parameters_[i];
        const auto seed = static_cast<std::uint64_t>(100 * t) + i;
        p.set_grad(
            MakeTensor(device(), p.dtype(), p.shape(), RandomValues(p.numel(), -2, 2, seed)));
        update(references_[i], ToDoubles(p.grad()), lr, t);
      }
      optimizer.Step(lr);
    }
    EXPECT_EQ(optimizer.step(), kSteps);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      EXPECT_THAT(ToDoubles(parameters_[i]), Pointwise(DoubleNear(tolerance), references_[i].value))
          << i;
    }
  }

  void ExpectAdamW(DataType dtype, double tolerance) {
    MakeParameters(dtype);
    const AdamW::Options options{0.8, 0.9, 1e-6};
    AdamW optimizer(groups_, options);
    Run(optimizer, tolerance,
        [&](Reference& reference, const std::vector<double>& grad, double lr, int t) {
          reference.ApplyAdamW(grad, lr, options, t);
        });
  }

  void ExpectSgd(DataType dtype, double tolerance, const Sgd::Options& options) {
    MakeParameters(dtype);
    Sgd optimizer(groups_, options);
    Run(optimizer, tolerance,
        [&](Reference& reference, const std::vector<double>& grad, double lr, int t) {
          reference.ApplySgd(grad, lr, options, t);
        });
  }

  std::vector<ParameterGroup> groups_;
  std::vector<Tensor> parameters_;
  std::vector<Reference> references_;
};

TEST_P(OptimizerTest, AdamWInFloat64) {
  ExpectAdamW(DataType::kFloat64, 1e-13);
}
TEST_P(OptimizerTest, AdamWInFloat32) {
  ExpectAdamW(DataType::kFloat32, 2e-6);
}
// The masters are exact to float32; what is left is one rounding to bfloat16 of values below 2.
TEST_P(OptimizerTest, AdamWInBFloat16) {
  ExpectAdamW(DataType::kBFloat16, 0x1p-8);
}

TEST_P(OptimizerTest, PlainSgd) {
  ExpectSgd(DataType::kFloat64, 1e-13, {});
}
TEST_P(OptimizerTest, SgdWithMomentum) {
  ExpectSgd(DataType::kFloat64, 1e-13, {.momentum = 0.9});
}
TEST_P(OptimizerTest, SgdWithDampening) {
  ExpectSgd(DataType::kFloat64, 1e-13, {.momentum = 0.9, .dampening = 0.3});
}
TEST_P(OptimizerTest, SgdWithNesterov) {
  ExpectSgd(DataType::kFloat64, 1e-13, {.momentum = 0.9, .nesterov = true});
}
TEST_P(OptimizerTest, SgdInFloat32AndBFloat16) {
  ExpectSgd(DataType::kFloat32, 2e-6, {.momentum = 0.9});
  parameters_.clear();
  references_.clear();
  ExpectSgd(DataType::kBFloat16, 0x1p-8, {.momentum = 0.9});
}

TEST_P(OptimizerTest, MasterCopiesKeepUpdatesThatBFloat16CannotHold) {
  const Tensor parameter = To(Ones({1}, DataType::kBFloat16), device());
  parameter.set_requires_grad();
  Sgd optimizer(std::vector<ParameterGroup>{{{{"p", parameter}}, 0.0}});
  for (int i = 0; i < 64; ++i) {
    parameter.set_grad(To(Ones({1}, DataType::kBFloat16), device()));
    optimizer.Step(0x1p-10);  // a quarter of the distance of 1 to the next number below
  }
  EXPECT_EQ(ToDoubles(parameter)[0], 1.0 - 64 * 0x1p-10);
}

TEST_P(OptimizerTest, TheGradientFactorScalesAllGradients) {
  MakeParameters(DataType::kFloat64);
  Sgd optimizer(groups_);
  const std::vector<double> before = references_[2].value;
  for (const Tensor& p : parameters_)
    p.set_grad(To(Ones(p.shape(), DataType::kFloat64), device()));
  optimizer.Step(0.5, To(Full({}, 0.25), device()));
  const std::vector<double> after = ToDoubles(parameters_[2]);
  for (std::size_t i = 0; i < after.size(); ++i)
    EXPECT_DOUBLE_EQ(after[i], before[i] - 0.125);
}

TEST_P(OptimizerTest, ZeroGradDropsGradients) {
  MakeParameters(DataType::kFloat32);
  AdamW optimizer(groups_);
  for (const Tensor& p : parameters_)
    p.set_grad(Ones(p.shape(), p.dtype(), device()));
  optimizer.ZeroGrad();
  for (const Tensor& p : parameters_)
    EXPECT_FALSE(p.grad().defined());
  optimizer.Step(1.0);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    EXPECT_EQ(ToDoubles(parameters_[i]), references_[i].value) << "without gradients, no update";
}

TEST_P(OptimizerTest, GradientNormIsOverAllGradientsAndClipsToTheMaximum) {
  MakeParameters(DataType::kFloat32);
  double squares = 0.0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (i == 1) continue;
    const Tensor& p = parameters_[i];
    const auto values = RandomValues(p.numel(), -2, 2, i);
    p.set_grad(
        MakeTensor(device(), i == 2 ? DataType::kBFloat16 : DataType::kFloat32, p.shape(), values));
    for (const double g : ToDoubles(p.grad()))
      squares += g * g;
  }
  const double norm = std::sqrt(squares);
  const GradientNorm unclipped = ComputeGradientNorm(parameters_, 0.0);
  EXPECT_NEAR(unclipped.norm.Item(), norm, 1e-6 * norm);
  EXPECT_EQ(unclipped.factor.Item(), 1.0);
  EXPECT_EQ(ComputeGradientNorm(parameters_, 2 * norm).factor.Item(), 1.0);
  EXPECT_NEAR(ComputeGradientNorm(parameters_, norm / 4).factor.Item(), 0.25, 1e-6);
  EXPECT_EQ(unclipped.norm.dtype(), DataType::kFloat32);
  EXPECT_EQ(unclipped.norm.device(), device());

  const std::vector<double> before = ToDoubles(parameters_[0].grad());
  EXPECT_NEAR(ClipGradNorm(parameters_, norm / 4).Item(), norm, 1e-6 * norm);
  const std::vector<double> after = ToDoubles(parameters_[0].grad());
  for (std::size_t i = 0; i < after.size(); ++i)
    EXPECT_NEAR(after[i], before[i] / 4, 1e-6);
  EXPECT_FALSE(parameters_[1].grad().defined());
}

TEST_P(OptimizerTest, TheNormOfNoGradientIsZero) {
  MakeParameters(DataType::kFloat32);
  const GradientNorm result = ComputeGradientNorm(parameters_, 1.0);
  EXPECT_EQ(result.norm.Item(), 0.0);
  EXPECT_EQ(result.factor.Item(), 1.0);
  EXPECT_EQ(ComputeGradientNorm({}, 1.0).norm.Item(), 0.0);
}

TEST_P(OptimizerTest, TheFactorOfANormThatIsNotFiniteIsNaN) {
  MakeParameters(DataType::kFloat32);
  for (const double value : {std::nan(""), HUGE_VAL}) {
    parameters_[2].set_grad(Full({11}, value, DataType::kFloat32, device()));
    for (const double max_norm : {0.0, 1.0}) {
      const GradientNorm result = ComputeGradientNorm(parameters_, max_norm);
      EXPECT_FALSE(std::isfinite(result.norm.Item())) << value;
      EXPECT_TRUE(std::isnan(result.factor.Item())) << value << ", at most " << max_norm;
    }
  }
}

TEST_P(OptimizerTest, AStepWhoseGradientsAreNotFiniteChangesNothing) {
  MakeParameters(DataType::kFloat32);
  AdamW adamw(groups_);
  Sgd sgd(groups_, {.momentum = 0.9});
  const auto values = [&] {
    std::vector<std::vector<double>> result;
    for (const Tensor& p : parameters_)
      result.push_back(ToDoubles(p));
    for (const Optimizer* optimizer : std::vector<const Optimizer*>{&adamw, &sgd}) {
      for (const auto& [name, tensor] : optimizer->StateDict())
        result.push_back(ToDoubles(tensor));
    }
    return result;
  };
  for (Optimizer* optimizer : std::vector<Optimizer*>{&adamw, &sgd}) {
    for (const Tensor& p : parameters_)
      p.set_grad(Ones(p.shape(), p.dtype(), device()));
    optimizer->Step(0.1, ComputeGradientNorm(parameters_, 1.0).factor);
    const auto before = values();
    parameters_[0].set_grad(Full({3, 5}, HUGE_VAL, DataType::kFloat32, device()));
    optimizer->Step(0.1, ComputeGradientNorm(parameters_, 1.0).factor);
    EXPECT_EQ(values(), before);
    EXPECT_EQ(optimizer->step(), 2);
    optimizer->DiscardStep();
    EXPECT_EQ(optimizer->step(), 1);
  }
}

TEST_P(OptimizerTest, TheNormOfLargeGradientsDoesNotOverflow) {
  MakeParameters(DataType::kFloat32);
  parameters_[0].set_grad(Full({3, 5}, 1e30, DataType::kFloat32, device()));
  EXPECT_NEAR(ComputeGradientNorm(parameters_, 1.0).norm.Item(), std::sqrt(15.0) * 1e30, 1e24);
}

TEST_P(OptimizerTest, DecayMatricesOnlySortsByRank) {
  MakeParameters(DataType::kFloat32);
  NamedTensors all = groups_[0].parameters;
  all.insert(all.end(), groups_[1].parameters.begin(), groups_[1].parameters.end());
  const auto groups = DecayMatricesOnly(all, 0.3);
  ASSERT_EQ(groups.size(), 2u);
  ASSERT_EQ(groups[0].parameters.size(), 1u);
  EXPECT_EQ(groups[0].parameters[0].first, "matrix");
  EXPECT_EQ(groups[0].weight_decay, 0.3);
  EXPECT_EQ(groups[1].parameters.size(), 4u);
  EXPECT_EQ(groups[1].weight_decay, 0.0);
}

TEST_P(OptimizerTest, WrongOptionsAreRefused) {
  MakeParameters(DataType::kFloat32);
  EXPECT_ERROR(AdamW(std::vector<ParameterGroup>{groups_[0], groups_[0]}),
               "parameter matrix is listed twice");
  EXPECT_ERROR(Sgd(groups_, {.momentum = 0.0, .nesterov = true}),
               "expected a positive momentum and no dampening with nesterov, got 0 and 0");
  EXPECT_ERROR(Sgd(groups_, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), "nesterov");
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(OptimizerTest);

}  // namespace
}  // namespace infini_train::optim
