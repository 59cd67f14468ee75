// LinearCrossEntropy against its definition in float64, and its gradients against differences.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;
using test::Tolerance;

constexpr std::int64_t kIgnore = -100;

struct Expected {
  double loss = 0;
  std::vector<double> grad_hidden, grad_weight;
  std::vector<double> hidden_scales, weight_scales;  // sums of the terms' magnitudes
  double logit_scale = 0;                            // the largest such sum of a logit
  double largest_logit = 0;
  std::int64_t counted = 0;
};

Expected Reference(const std::vector<double>& hidden, const std::vector<double>& weight,
                   const std::vector<std::int64_t>& targets, std::int64_t c, double scale) {
  const auto n = static_cast<std::int64_t>(targets.size());
  const auto v = static_cast<std::int64_t>(weight.size()) / c;
  Expected result;
  result.grad_hidden.assign(n * c, 0);
  result.hidden_scales.assign(n * c, 0);
  result.grad_weight.assign(v * c, 0);
  result.weight_scales.assign(v * c, 0);
  for (std::int64_t i = 0; i < n; ++i) {
    if (targets[i] == kIgnore) continue;
    ++result.counted;
    std::vector<double> logits(v);
    double max = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = 0; j < v; ++j) {
      double magnitude = 0;
      for (std::int64_t x = 0; x < c; ++x) {
        logits[j] += hidden[i * c + x] * weight[j * c + x];
        magnitude += std::abs(hidden[i * c + x] * weight[j * c + x]);
      }
      max = std::max(max, logits[j]);
      result.largest_logit = std::max(result.largest_logit, std::abs(logits[j]));
      result.logit_scale = std::max(result.logit_scale, magnitude);
    }
    double sum = 0;
    for (const double logit : logits)
      sum += std::exp(logit - max);
    result.loss += scale * (std::log(sum) + max - logits[targets[i]]);
    for (std::int64_t j = 0; j < v; ++j) {
      const double p = std::exp(logits[j] - max) / sum;
      const double grad = scale * (p - (j == targets[i] ? 1 : 0));
      for (std::int64_t x = 0; x < c; ++x) {
        result.grad_hidden[i * c + x] += grad * weight[j * c + x];
        result.hidden_scales[i * c + x] += std::abs(grad * weight[j * c + x]);
        result.grad_weight[j * c + x] += grad * hidden[i * c + x];
        result.weight_scales[j * c + x] += std::abs(grad * hidden[i * c + x]);
      }
    }
  }
  return result;
}

std::vector<std::int64_t> MakeTargets(std::int64_t n, std::int64_t v) {
  std::vector<std::int64_t> targets(n);
  for (std::int64_t i = 0; i < n; ++i)
    targets[i] = (i * 7 + 3) % v;
  return targets;
}

class LinearCrossEntropyTest : public DeviceTest {
 protected:
  struct Result {
    Tensor loss, grad_hidden, grad_weight;
  };

  static DataType StatType(DataType dtype) {
    return dtype == DataType::kFloat64 ? dtype : DataType::kFloat32;
  }

  static Tensor ToDevice(const std::vector<std::int64_t>& targets) {
    const std::vector<double> values(targets.begin(), targets.end());
    return MakeTensor(device(), DataType::kInt64, {static_cast<std::int64_t>(targets.size())},
                      values);
  }

  static Result Run(const Tensor& hidden, const Tensor& weight, const Tensor& targets, double scale,
                    DataType weight_grad_type) {
    Result result{MakeOutput(device(), StatType(hidden.dtype()), {}),
                  MakeOutput(device(), hidden.dtype(), hidden.shape()),
                  MakeOutput(device(), weight_grad_type, weight.shape())};
    Call<op::LinearCrossEntropy>(result.loss, result.grad_hidden, result.grad_weight, hidden,
                                 weight, targets, kIgnore, scale);
    return result;
  }

  static void Check(DataType dtype, std::int64_t c, std::int64_t v,
                    const std::vector<std::int64_t>& targets, double scale,
                    DataType weight_grad_type) {
    const auto n = static_cast<std::int64_t>(targets.size());
    SCOPED_TRACE(std::string(ToString(dtype)) + " C " + std::to_string(c) + " V " +
                 std::to_string(v) + " N " + std::to_string(n));
    const Tensor hidden = MakeTensor(device(), dtype, {n, c}, RandomValues(n * c, -1, 1, 1));
    const Tensor weight = MakeTensor(device(), dtype, {v, c}, RandomValues(v * c, -1, 1, 2));
    const Result actual = Run(hidden, weight, ToDevice(targets), scale, weight_grad_type);
    const Expected expected = Reference(ToDoubles(hidden), ToDoubles(weight), targets, c, scale);

    // A logit is off by c u times its scale; a loss by twice that, a probability by it in
    // proportion. Half types may store the logits rounded.
    const bool half = SizeOf(dtype) == 2;
    const double logit_operations = static_cast<double>(c) * expected.logit_scale;
    const double loss_scale = std::abs(scale) * static_cast<double>(expected.counted);
    ExpectClose(actual.loss, {expected.loss},
                half ? Tolerance{.operations = 2 * expected.largest_logit + 1,
                                 .scale = loss_scale,
                                 .compute = dtype}
                     : Tolerance{.operations = 2 * logit_operations + static_cast<double>(v) + 20,
                                 .scale = loss_scale});
    // Half types store logits and their gradient rounded, and the sums of that dominate.
    const Tolerance tolerance{
        .operations = half ? 2 * expected.largest_logit + 2
                           : 2 * logit_operations + static_cast<double>(v + n) + 20,
        .compute = half ? dtype : DataType::kFloat32};
    ExpectClose(actual.grad_hidden, expected.grad_hidden, tolerance, expected.hidden_scales);
    ExpectClose(actual.grad_weight, expected.grad_weight, tolerance, expected.weight_scales);
  }
};

TEST_P(LinearCrossEntropyTest, ShapesAndTypes) {
  for (const DataType dtype : test::kFloatingTypes) {
    const DataType wide = StatType(dtype);
    Check(dtype, 8, 11, MakeTargets(5, 11), 1.0, dtype);
    Check(dtype, 33, 130, MakeTargets(70, 130), 1.0 / 70, dtype);
    Check(dtype, 33, 130, MakeTargets(70, 130), -3.5, wide);
    Check(dtype, 1, 1, {0, 0}, 1.0, dtype);
    Check(dtype, 5, 2000, {1999, 0, 1024}, 0.25, wide);
  }
}

TEST_P(LinearCrossEntropyTest, LargeVocabularies) {
  Check(DataType::kFloat32, 2, 50257, {50256, 0, 4711}, 1.0 / 3, DataType::kFloat32);
  Check(DataType::kBFloat16, 3, 128256, {128255, 3, 9000, 30000, 60000}, 0.5, DataType::kFloat32);
}

// More rows than whose logits are held at once.
TEST_P(LinearCrossEntropyTest, SeveralChunks) {
  std::vector<std::int64_t> targets = MakeTargets(17000, 13);
  for (std::size_t i = 8600; i < 9600; ++i)
    targets[i] = kIgnore;
  Check(DataType::kFloat32, 3, 13, targets, 1.0 / 64, DataType::kFloat32);
  Check(DataType::kBFloat16, 3, 13, targets, 1.0 / 64, DataType::kFloat32);
  Check(DataType::kBFloat16, 3, 13, targets, 1.0 / 64, DataType::kBFloat16);
}

TEST_P(LinearCrossEntropyTest, IgnoredRowsHaveZeroGradientWhateverTheyHold) {
  for (const DataType dtype : test::kFloatingTypes) {
    const std::int64_t c = 19, v = 40;
    const std::vector<std::int64_t> targets = {kIgnore, 3, kIgnore, kIgnore, 39, 0, kIgnore};
    Check(dtype, c, v, targets, 1.0 / 3, dtype);

    std::vector<double> values = RandomValues(7 * c, -1, 1, 1);
    for (std::int64_t i = 0; i < 7 * c; ++i) {
      if (targets[i / c] == kIgnore) values[i] = std::numeric_limits<double>::quiet_NaN();
    }
    const Tensor hidden = MakeTensor(device(), dtype, {7, c}, values);
    const Tensor weight = MakeTensor(device(), dtype, {v, c}, RandomValues(v * c, -1, 1, 2));
    const Result actual = Run(hidden, weight, ToDevice(targets), 1.0, dtype);
    EXPECT_TRUE(std::isfinite(actual.loss.Item()));
    const std::vector<double> grad = ToDoubles(actual.grad_hidden);
    for (std::int64_t i = 0; i < 7 * c; ++i) {
      if (targets[i / c] == kIgnore) {
        EXPECT_EQ(grad[i], 0.0);
      } else {
        EXPECT_TRUE(std::isfinite(grad[i]));
      }
    }
    for (const double value : ToDoubles(actual.grad_weight))
      EXPECT_TRUE(std::isfinite(value));
  }
}

TEST_P(LinearCrossEntropyTest, NothingToPredictGivesZero) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const std::int64_t n : {0, 3}) {
      const Tensor hidden = MakeTensor(device(), dtype, {n, 4}, RandomValues(n * 4, -1, 1, 1));
      const Tensor weight = MakeTensor(device(), dtype, {6, 4}, RandomValues(24, -1, 1, 2));
      const Tensor targets = ToDevice(std::vector<std::int64_t>(n, kIgnore));
      const Result actual = Run(hidden, weight, targets, 1.0, dtype);
      EXPECT_EQ(actual.loss.Item(), 0.0);
      test::ExpectEqual(actual.grad_hidden, std::vector<double>(n * 4, 0.0));
      test::ExpectEqual(actual.grad_weight, std::vector<double>(24, 0.0));
    }
  }
}

TEST_P(LinearCrossEntropyTest, LargeLogitsStayFinite) {
  for (const DataType dtype : test::kFloatingTypes) {
    const Tensor hidden = MakeTensor(device(), dtype, {2, 1}, {100, -100});
    const Tensor weight = MakeTensor(device(), dtype, {3, 1}, {100, 50, -100});
    const Result actual = Run(hidden, weight, ToDevice({0, 0}), 1.0, dtype);
    EXPECT_NEAR(actual.loss.Item(), 20000.0, 20000.0 * (SizeOf(dtype) == 2 ? 0x1p-8 : 1e-6));
    const std::vector<double> grad = ToDoubles(actual.grad_hidden);
    EXPECT_EQ(grad[0], 0.0);
    EXPECT_EQ(grad[1], -200.0);
  }
}

TEST_P(LinearCrossEntropyTest, GradientsAreOptional) {
  const Tensor hidden =
      MakeTensor(device(), DataType::kFloat32, {3, 4}, RandomValues(12, -1, 1, 1));
  const Tensor weight =
      MakeTensor(device(), DataType::kFloat32, {5, 4}, RandomValues(20, -1, 1, 2));
  const Tensor targets = MakeTensor(device(), DataType::kInt32, {3}, {4, 0, 2});
  const Result all = Run(hidden, weight, targets, 1.0, DataType::kFloat32);
  for (int given = 0; given < 3; ++given) {
    Tensor loss = MakeOutput(device(), DataType::kFloat32, {});
    Tensor grad_hidden, grad_weight;
    if (given == 1) grad_hidden = MakeOutput(device(), DataType::kFloat32, {3, 4});
    if (given == 2) grad_weight = MakeOutput(device(), DataType::kFloat32, {5, 4});
    Call<op::LinearCrossEntropy>(loss, grad_hidden, grad_weight, hidden, weight, targets, kIgnore,
                                 1.0);
    test::ExpectSameBits(loss, all.loss);
    if (given == 1) test::ExpectSameBits(grad_hidden, all.grad_hidden);
    if (given == 2) test::ExpectSameBits(grad_weight, all.grad_weight);
  }
}

TEST_P(LinearCrossEntropyTest, TargetsOutsideTheVocabularyAreNamedBeforeAnythingIsWritten) {
  if (!device().is_cpu()) GTEST_SKIP() << "only the CPU can tell at once";
  const Tensor hidden =
      MakeTensor(device(), DataType::kFloat32, {3, 4}, RandomValues(12, -1, 1, 1));
  const Tensor weight =
      MakeTensor(device(), DataType::kFloat32, {5, 4}, RandomValues(20, -1, 1, 2));
  for (const std::int64_t bad : {std::int64_t{5}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    Tensor loss = MakeTensor(device(), DataType::kFloat32, {}, {42});
    Tensor grad = MakeTensor(device(), DataType::kFloat32, {3, 4}, std::vector<double>(12, 42));
    Tensor none;
    try {
      Call<op::LinearCrossEntropy>(loss, grad, none, hidden, weight, ToDevice({1, kIgnore, bad}),
                                   kIgnore, 1.0);
      FAIL() << "no error for target " << bad;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(bad)));
      EXPECT_THAT(error.what(), testing::HasSubstr("position 2"));
    }
    EXPECT_EQ(loss.Item(), 42);
    test::ExpectEqual(grad, std::vector<double>(12, 42));
  }
}

TEST_P(LinearCrossEntropyTest, GradientsMatchDifferences) {
  const std::int64_t n = 4, c = 3, v = 6;
  const std::vector<std::int64_t> targets = {5, kIgnore, 0, 2};
  std::vector<double> hidden = RandomValues(n * c, -1, 1, 1);
  std::vector<double> weight = RandomValues(v * c, -1, 1, 2);
  const auto run = [&] {
    return Run(MakeTensor(device(), DataType::kFloat64, {n, c}, hidden),
               MakeTensor(device(), DataType::kFloat64, {v, c}, weight), ToDevice(targets), 0.7,
               DataType::kFloat64);
  };
  const Result analytic = run();
  const auto check = [&](std::vector<double>& inputs, const std::vector<double>& grads) {
    constexpr double kStep = 1e-5;  // errors: step^2 of the formula, u / step of the rounding
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const double value = inputs[i];
      inputs[i] = value + kStep;
      const double above = run().loss.Item();
      inputs[i] = value - kStep;
      const double below = run().loss.Item();
      inputs[i] = value;
      EXPECT_NEAR(grads[i], (above - below) / (2 * kStep), 1e-9);
    }
  };
  check(hidden, ToDoubles(analytic.grad_hidden));
  check(weight, ToDoubles(analytic.grad_weight));
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(LinearCrossEntropyTest);

}  // namespace
}  // namespace infini_train
