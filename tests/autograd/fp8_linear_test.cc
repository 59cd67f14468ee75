#include "infini_train/autograd/fp8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/fp8.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectEqual;
using test::ExpectSameBits;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;
using State = std::shared_ptr<Fp8LinearState>;

struct States {
  std::shared_ptr<Fp8Scales> scales;
  State first, second;
};

States MakeStates(Device device) {
  std::vector<Fp8Format> formats;
  for (int i = 0; i < 2; ++i) {
    formats.insert(formats.end(), std::begin(Fp8LinearState::kFormats),
                   std::end(Fp8LinearState::kFormats));
  }
  States states{std::make_shared<Fp8Scales>(formats, device), {}, {}};
  states.first = std::make_shared<Fp8LinearState>(states.scales, 0);
  states.second = std::make_shared<Fp8LinearState>(states.scales, 1);
  return states;
}

/// Leaves with one set of values in any dtype.
struct Leaves {
  Leaves(Device device, DataType dtype, std::int64_t rows, std::int64_t in, std::int64_t hidden,
         std::int64_t out) {
    // Gradients and weights are far from the formats' middle: scales bring them there.
    x = Leaf(device, dtype, {2, rows / 2, in}, 3, 1);
    fc_weight = Leaf(device, dtype, {hidden, in}, 0.05, 2);
    fc_bias = Leaf(device, dtype, {hidden}, 0.1, 3);
    proj_weight = Leaf(device, dtype, {out, hidden}, 0.05, 4);
    proj_bias = Leaf(device, dtype, {out}, 0.1, 5);
    grad = Leaf(device, dtype, {2, rows / 2, out}, 1e-5, 6).Detach();
  }
  static Tensor Leaf(Device device, DataType dtype, const Dims& shape, double range,
                     std::uint64_t seed) {
    // Values that bfloat16 has, so that all dtypes start from the same ones.
    const Tensor values = MakeTensor(device, DataType::kBFloat16, shape,
                                     RandomValues(Numel(shape), -range, range, seed));
    return To(values, dtype).Detach().set_requires_grad();
  }
  std::vector<Tensor> Grads() const {
    return {x.grad(), fc_weight.grad(), fc_bias.grad(), proj_weight.grad(), proj_bias.grad()};
  }

  Tensor x, fc_weight, fc_bias, proj_weight, proj_bias, grad;
};

/// Expects the distance of two tensors to be at most `tolerance` of the second's length.
void ExpectNear(const Tensor& actual, const Tensor& expected, double tolerance,
                const std::string& name) {
  ASSERT_TRUE(actual.defined()) << name;
  ASSERT_EQ(actual.shape(), expected.shape()) << name;
  const std::vector<double> a = ToDoubles(actual), b = ToDoubles(expected);
  double distance = 0, length = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    distance += (a[i] - b[i]) * (a[i] - b[i]);
    length += b[i] * b[i];
  }
  EXPECT_LE(std::sqrt(distance), tolerance * std::sqrt(length)) << name;
}

void BackwardFrom(const Tensor& y, const Tensor& grad) {
  const std::vector<Tensor> outputs = {y}, grads = {grad};
  Backward(outputs, grads);
}

class Fp8LinearTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Fp8LinearTest);

// Rounding to E4M3 is off by 2^-4 at most and 2.5% on average, to E5M2 by twice as much; errors of
// terms of a sum are independent.
constexpr double kForwardError = 0.045;
constexpr double kBackwardError = 0.07;

TEST_P(Fp8LinearTest, IsLinearUpToTheFormatsErrors) {
  const Leaves reference({}, DataType::kFloat64, 48, 32, 64, 16);
  const Tensor expected = Linear(reference.x, reference.fc_weight, reference.fc_bias);
  const Tensor grad =
      To(Leaves::Leaf({}, DataType::kFloat64, expected.shape(), 1e-5, 7).Detach(), device());
  BackwardFrom(expected, To(grad, Device()));
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const bool autocast : {false, true}) {
      const Leaves leaves(device(), dtype, 48, 32, 64, 16);
      const States states = MakeStates(device());
      Tensor y;
      {
        const Autocast scope(autocast ? std::optional(DataType::kBFloat16) : std::nullopt);
        y = Fp8Linear(leaves.x, leaves.fc_weight, leaves.fc_bias, states.first);
      }
      EXPECT_EQ(y.dtype(), autocast ? DataType::kBFloat16 : dtype);
      ExpectNear(y, expected, kForwardError, "y");
      BackwardFrom(y, To(grad, y.dtype()));
      EXPECT_EQ(leaves.x.grad().dtype(), dtype);
      EXPECT_EQ(leaves.fc_weight.grad().dtype(), dtype);
      ExpectNear(leaves.x.grad(), reference.x.grad(), kBackwardError, "x");
      ExpectNear(leaves.fc_weight.grad(), reference.fc_weight.grad(), kBackwardError, "weight");
      // The bias' gradient does not go through FP8.
      ExpectNear(leaves.fc_bias.grad(), reference.fc_bias.grad(), 0.01, "bias");
    }
  }
}

TEST_P(Fp8LinearTest, MlpIsItsPartsUpToTheFormatsErrors) {
  for (const bool tanh_approximation : {false, true}) {
    const auto approximation =
        tanh_approximation ? GeluApproximation::kTanh : GeluApproximation::kNone;
    const Leaves reference({}, DataType::kFloat64, 48, 32, 64, 16);
    const Tensor expected =
        Linear(Gelu(Linear(reference.x, reference.fc_weight, reference.fc_bias), approximation),
               reference.proj_weight, reference.proj_bias);
    BackwardFrom(expected, reference.grad);
    const Leaves leaves(device(), DataType::kFloat32, 48, 32, 64, 16);
    const States states = MakeStates(device());
    const Autocast autocast(DataType::kBFloat16);
    const Tensor y = Fp8GeluMlp(leaves.x, leaves.fc_weight, leaves.fc_bias, leaves.proj_weight,
                                leaves.proj_bias, tanh_approximation, states.first, states.second);
    EXPECT_EQ(y.dtype(), DataType::kBFloat16);
    ExpectNear(y, expected, 2 * kForwardError, "y");
    BackwardFrom(y, To(leaves.grad, y.dtype()));
    const std::vector<Tensor> grads = leaves.Grads(), wanted = reference.Grads();
    for (std::size_t i = 0; i < grads.size(); ++i)
      ExpectNear(grads[i], wanted[i], 2 * kBackwardError, "gradient " + std::to_string(i));
  }
}

// The fused function is made of the others, and differs from them by no more than one rounding of
// the gradient between them.
TEST_P(Fp8LinearTest, MlpEqualsTwoLinearsWithGeluBetween) {
  const Leaves fused(device(), DataType::kFloat32, 48, 32, 64, 16);
  const Leaves parts(device(), DataType::kFloat32, 48, 32, 64, 16);
  const States fused_states = MakeStates(device()), states = MakeStates(device());
  const Tensor y = Fp8GeluMlp(fused.x, fused.fc_weight, fused.fc_bias, fused.proj_weight,
                              fused.proj_bias, true, fused_states.first, fused_states.second);
  const Tensor hidden = Fp8Linear(parts.x, parts.fc_weight, parts.fc_bias, states.first);
  const Tensor z = Fp8Linear(Gelu(hidden, GeluApproximation::kTanh), parts.proj_weight,
                             parts.proj_bias, states.second);
  ExpectSameBits(y, z);
  BackwardFrom(y, fused.grad);
  BackwardFrom(z, parts.grad);
  const std::vector<Tensor> a = fused.Grads(), b = parts.Grads();
  for (std::size_t i = 0; i < a.size(); ++i)
    ExpectSameBits(a[i], b[i]);
}

/// A norm in front of a linear and of an MLP, in one way or the other.
struct NormThenLinear {
  NormThenLinear(Device device, DataType dtype)
      : leaves(device, dtype, 48, 32, 64, 16),
        residual(Leaves::Leaf(device, dtype, {2, 24, 32}, 3, 8)),
        norm_weight(Leaves::Leaf(device, DataType::kFloat32, {32}, 1, 9)),
        norm_bias(Leaves::Leaf(device, DataType::kFloat32, {32}, 1, 10)),
        grad_sum(Leaves::Leaf(device, dtype, {2, 24, 32}, 1e-5, 11).Detach()),
        states(MakeStates(device)) {}

  /// The sum, the layer's result and all gradients.
  std::vector<Tensor> Run(bool fused, bool layer_norm, bool mlp, bool with_residual) {
    const Tensor other = with_residual ? residual : Tensor();
    const auto layer = [&](const auto& x) {
      return mlp ? Fp8GeluMlp(x, leaves.fc_weight, leaves.fc_bias, leaves.proj_weight,
                              leaves.proj_bias, true, states.first, states.second)
                 : Fp8Linear(x, leaves.fc_weight, leaves.fc_bias, states.first);
    };
    Tensor sum, y;
    if (fused) {
      const auto [total, normalized] =
          layer_norm
              ? Fp8AddLayerNorm(leaves.x, other, norm_weight, norm_bias, 1e-3, *states.first, true)
              : Fp8AddRmsNorm(leaves.x, other, norm_weight, 1e-3, *states.first, true);
      std::tie(sum, y) = std::pair(total, layer(normalized));
    } else {
      const auto [total, normalized] =
          layer_norm ? AddLayerNorm(leaves.x, other, norm_weight, norm_bias, 1e-3)
                     : AddRmsNorm(leaves.x, other, norm_weight, 1e-3);
      std::tie(sum, y) = std::pair(total, layer(normalized));
    }
    const Tensor grad = Leaves::Leaf(y.device(), y.dtype(), y.shape(), 1e-5, 12).Detach();
    const std::vector<Tensor> outputs = {sum, y}, grads = {grad_sum, grad};
    Backward(outputs, grads);
    std::vector<Tensor> results = {sum.Detach(),
                                   y.Detach(),
                                   leaves.x.grad(),
                                   norm_weight.grad(),
                                   leaves.fc_weight.grad(),
                                   leaves.fc_bias.grad()};
    if (with_residual) results.push_back(residual.grad());
    if (layer_norm) results.push_back(norm_bias.grad());
    if (mlp) results.push_back(leaves.proj_weight.grad());
    return results;
  }

  Leaves leaves;
  Tensor residual, norm_weight, norm_bias, grad_sum;
  States states;
};

// Up to what is rounded otherwise, as the norm is not rounded before it is quantised.
TEST_P(Fp8LinearTest, ANormMayQuantizeForTheLinearBehindIt) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (int kind = 0; kind < 8; ++kind) {
      const bool layer_norm = kind % 2 == 0, mlp = kind / 2 % 2 == 0, with_residual = kind / 4 == 0;
      SCOPED_TRACE(std::string(ToString(dtype)) + " " + std::to_string(kind));
      NormThenLinear fused(device(), dtype), parts(device(), dtype);
      const std::vector<Tensor> a = fused.Run(true, layer_norm, mlp, with_residual);
      const std::vector<Tensor> b = parts.Run(false, layer_norm, mlp, with_residual);
      for (std::size_t i = 0; i < a.size(); ++i)
        ExpectNear(a[i], b[i], dtype == DataType::kFloat32 ? 0.02 : 0.05, std::to_string(i));
      // Both recorded the same magnitudes.
      fused.states.scales->Update();
      parts.states.scales->Update();
      ExpectSameBits(fused.states.scales->State().scale, parts.states.scales->State().scale);
    }
  }
}

TEST_P(Fp8LinearTest, AnActivationIsForAGivenUse) {
  NormThenLinear run(device(), DataType::kFloat32);
  const auto normalized = [&] {
    return Fp8AddRmsNorm(run.leaves.x, {}, run.norm_weight, 1e-3, *run.states.first, false).second;
  };
  // The copy for the weight's gradient is missing, which matters where there is one.
  EXPECT_THROW(Fp8Linear(normalized(), run.leaves.fc_weight, {}, run.states.first), Error);
  const NoGrad no_grad;
  EXPECT_EQ(Fp8Linear(normalized(), run.leaves.fc_weight, {}, run.states.first).shape(),
            (Dims{2, 24, 64}));
}

/// A head over 64 classes and its loss.
struct Head {
  explicit Head(Device device, DataType dtype)
      : hidden(Leaves::Leaf(device, dtype, {2, 24, 32}, 3, 1)),
        weight(Leaves::Leaf(device, dtype, {64, 32}, 0.2, 2)),
        states(MakeStates(device)) {
    std::vector<double> classes;
    for (int i = 0; i < 48; ++i)
      classes.push_back(i % 7 == 3 ? -100 : i * 5 % 64);
    targets = MakeTensor(device, DataType::kInt64, {2, 24}, classes);
  }
  Tensor Exact() const { return LinearCrossEntropy(hidden, weight, targets, 1.0 / 48, -100); }
  Tensor Fp8() const {
    return Fp8LinearCrossEntropy(hidden, weight, targets, 1.0 / 48, *states.first, -100);
  }

  Tensor hidden, weight, targets;
  States states;
};

TEST_P(Fp8LinearTest, HeadsLossIsExactAndItsGradientsAreInFp8) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    const Head exact(device(), dtype), fp8(device(), dtype);
    const Tensor expected = exact.Exact();
    for (int step = 0; step < 2; ++step) {
      const Tensor loss = fp8.Fp8();
      // Some devices hold no logits of bfloat16 that are rounded, others do.
      const double rounding = dtype == DataType::kFloat32 ? 1e-5 : 0x1p-8;
      EXPECT_NEAR(loss.Item(), expected.Item(), rounding * expected.Item());
      if (step == 0) Backward(loss);
      fp8.states.scales->Update();
    }
    Backward(expected);
    ExpectNear(fp8.hidden.grad(), exact.hidden.grad(), kBackwardError, "hidden");
    ExpectNear(fp8.weight.grad(), exact.weight.grad(), kBackwardError, "weight");
    EXPECT_NE(ToDoubles(fp8.weight.grad()), ToDoubles(exact.weight.grad())) << "FP8 was not used";
    EXPECT_EQ(fp8.states.scales->State().has_past.ToVector<std::uint8_t>(),
              (std::vector<std::uint8_t>{1, 1, 0, 0, 0, 0}));
    const NoGrad no_grad;
    ExpectSameBits(fp8.Fp8(), exact.Exact());
  }
  const Head wide(device(), DataType::kFloat64);
  EXPECT_THROW(wide.Fp8(), Error);
}

TEST_P(Fp8LinearTest, HeadsGradientsAddUp) {
  const Head once(device(), DataType::kFloat32), twice(device(), DataType::kFloat32);
  Backward(once.Fp8());
  for (int i = 0; i < 2; ++i)
    Backward(twice.Fp8());
  ExpectSameBits(twice.hidden.grad(), once.hidden.grad() * 2);
  ExpectSameBits(twice.weight.grad(), once.weight.grad() * 2);
}

TEST_P(Fp8LinearTest, OddSizesAndViews) {
  const Leaves reference({}, DataType::kFloat64, 6, 5, 7, 3);
  const Tensor expected = Linear(Transpose(reference.x, 0, 1), reference.fc_weight);
  Backward(Sum(expected));
  const Leaves leaves(device(), DataType::kFloat32, 6, 5, 7, 3);
  const States states = MakeStates(device());
  const Tensor y = Fp8Linear(Transpose(leaves.x, 0, 1), leaves.fc_weight, {}, states.first);
  ExpectNear(y, expected, 2 * kForwardError, "y");
  Backward(Sum(y));
  ExpectNear(leaves.x.grad(), reference.x.grad(), 2 * kBackwardError, "x");
  ExpectNear(leaves.fc_weight.grad(), reference.fc_weight.grad(), 2 * kBackwardError, "weight");
}

TEST_P(Fp8LinearTest, GradientsAddUp) {
  const Leaves once(device(), DataType::kFloat32, 16, 32, 48, 16);
  const Leaves twice(device(), DataType::kFloat32, 16, 32, 48, 16);
  const States once_states = MakeStates(device()), twice_states = MakeStates(device());
  Backward(Sum(Fp8Linear(once.x, once.fc_weight, once.fc_bias, once_states.first)));
  for (int i = 0; i < 2; ++i)
    Backward(Sum(Fp8Linear(twice.x, twice.fc_weight, twice.fc_bias, twice_states.first)));
  for (const auto& [a, b] : {std::pair(once.x, twice.x), std::pair(once.fc_weight, twice.fc_weight),
                             std::pair(once.fc_bias, twice.fc_bias)}) {
    ExpectSameBits(b.grad(), a.grad() * 2);
  }
}

TEST_P(Fp8LinearTest, OnlyWhatIsNeededIsComputed) {
  Leaves leaves(device(), DataType::kFloat32, 16, 32, 48, 16);
  leaves.x.set_requires_grad(false);
  leaves.fc_bias.set_requires_grad(false);
  const States states = MakeStates(device());
  Backward(Sum(Fp8Linear(leaves.x, leaves.fc_weight, leaves.fc_bias, states.first)));
  EXPECT_FALSE(leaves.x.grad().defined());
  EXPECT_FALSE(leaves.fc_bias.grad().defined());
  EXPECT_TRUE(leaves.fc_weight.grad().defined());
}

TEST_P(Fp8LinearTest, EvaluationUsesTheScalesAndLeavesThem) {
  const Leaves leaves(device(), DataType::kFloat32, 16, 32, 48, 16);
  const States states = MakeStates(device()), others = MakeStates(device());
  const auto run = [&](const States& with, double factor) {
    return Fp8Linear(leaves.x * factor, leaves.fc_weight, leaves.fc_bias, with.first);
  };
  const auto evaluate = [&](double factor) {
    const NoGrad no_grad;
    return run(states, factor);
  };
  // Without a past, as the first step will be; and the first step is what it would have been.
  const Tensor before = evaluate(1);
  ExpectSameBits(before, run(others, 1));
  evaluate(1000);
  ExpectSameBits(before, run(states, 1));
  states.scales->Update();
  others.scales->Update();
  ExpectSameBits(run(states, 2), run(others, 2));

  // Much larger numbers are cut off at the largest of the format.
  const std::vector<double> plain = ToDoubles(evaluate(1)), large = ToDoubles(evaluate(1e6));
  double most = 0, most_large = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    most = std::fmax(most, std::fabs(plain[i]));
    most_large = std::fmax(most_large, std::fabs(large[i]));
  }
  EXPECT_LT(most_large, 100 * most);
}

TEST_P(Fp8LinearTest, ScalesFollowWithinAStep) {
  const Leaves leaves(device(), DataType::kFloat32, 16, 32, 48, 16);
  const States states = MakeStates(device());
  const auto error = [&](double factor) {
    const Tensor x = (leaves.x * factor).Detach();
    const std::vector<double> actual = ToDoubles(Fp8Linear(x, leaves.fc_weight, {}, states.first));
    const std::vector<double> expected = ToDoubles(Linear(x, leaves.fc_weight));
    double distance = 0, length = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      distance += (actual[i] - expected[i]) * (actual[i] - expected[i]);
      length += expected[i] * expected[i];
    }
    return std::sqrt(distance / length);
  };
  EXPECT_LT(error(1), kForwardError);
  EXPECT_GT(error(1000), 0.5);
  states.scales->Update();
  EXPECT_LT(error(1000), kForwardError);
}

TEST_P(Fp8LinearTest, AWeightIsQuantizedAgainWhenItChanges) {
  const Leaves leaves(device(), DataType::kFloat32, 16, 32, 48, 16);
  const States states = MakeStates(device());
  const Tensor before = Fp8Linear(leaves.x, leaves.fc_weight, {}, states.first);
  {
    const NoGrad no_grad;
    Tensor weight = leaves.fc_weight;
    FillInPlace(weight, 0.03125);
  }
  const Tensor after = Fp8Linear(leaves.x, leaves.fc_weight, {}, states.first);
  EXPECT_NE(ToDoubles(before), ToDoubles(after));
  ExpectNear(after, Linear(leaves.x, leaves.fc_weight), kForwardError, "y");
}

TEST_P(Fp8LinearTest, EvaluationQuantizesAWeightOnceAndAgainWhenItChanges) {
  const Leaves leaves(device(), DataType::kFloat32, 16, 32, 48, 16);
  const States states = MakeStates(device());
  const auto quantized = [&] {
    const NoGrad no_grad;
    return states.first->QuantizeWeight(leaves.fc_weight, /*record=*/false);
  };
  const Fp8Matrix first = quantized();
  EXPECT_EQ(quantized().codes.raw_data(), first.codes.raw_data());
  EXPECT_FALSE(first.transposed.defined());
  // A step of training needs more, and records it.
  const Fp8Matrix recorded = states.first->QuantizeWeight(leaves.fc_weight, /*record=*/true);
  EXPECT_TRUE(recorded.transposed.defined());
  ExpectSameBits(recorded.codes, first.codes);
  EXPECT_EQ(quantized().codes.raw_data(), recorded.codes.raw_data());
  {
    const NoGrad no_grad;
    Tensor weight = leaves.fc_weight;
    FillInPlace(weight, 0.03125);
  }
  EXPECT_NE(quantized().codes.ToVector<std::uint8_t>(), first.codes.ToVector<std::uint8_t>());
}

TEST_P(Fp8LinearTest, GoesOnFromAState) {
  const Leaves leaves(device(), DataType::kFloat32, 16, 32, 48, 16);
  const States straight = MakeStates(device()), resumed = MakeStates(device());
  const auto step = [&](const States& states, double factor) {
    const Tensor y = Fp8Linear(leaves.x * factor, leaves.fc_weight, leaves.fc_bias, states.first);
    Backward(Sum(y));
    states.scales->Update();
    return y.Detach();
  };
  for (const double factor : {1.0, 100.0, 10.0})
    step(straight, factor);
  // What it had before does not count.
  step(resumed, 1e-3);
  const Fp8ScalesState state = straight.scales->State();
  resumed.scales->LoadState(state);
  EXPECT_EQ(state.has_past.ToVector<std::uint8_t>(), (std::vector<std::uint8_t>{1, 1, 1, 0, 0, 0}));
  for (int i = 0; i < 20; ++i)
    ExpectSameBits(step(straight, 1.0 + i), step(resumed, 1.0 + i));
  const Fp8ScalesState expected = straight.scales->State(), found = resumed.scales->State();
  ExpectSameBits(found.scale, expected.scale);
  ExpectSameBits(found.history, expected.history);
  ExpectSameBits(found.amax, expected.amax);
  EXPECT_NE(state.scale.ToVector<float>(), expected.scale.ToVector<float>());
  EXPECT_THROW(Fp8Scales({Fp8Format::kE4M3}, device()).LoadState(state), Error);
}

TEST_P(Fp8LinearTest, RecomputedActivationsAreTheSame) {
  const auto run = [&](bool recompute) {
    const Leaves leaves(device(), DataType::kFloat32, 16, 32, 48, 32);
    const States states = MakeStates(device());
    std::vector<Tensor> results;
    for (int step = 0; step < 2; ++step) {
      const auto function = [&](const std::vector<Tensor>& inputs) {
        return std::vector<Tensor>{Fp8GeluMlp(inputs[0], leaves.fc_weight, leaves.fc_bias,
                                              leaves.proj_weight, leaves.proj_bias, true,
                                              states.first, states.second)};
      };
      const Tensor y = recompute ? Checkpoint(function, {leaves.x})[0] : function({leaves.x})[0];
      BackwardFrom(y, leaves.grad);
      states.scales->Update();
      results.push_back(y.Detach());
    }
    const std::vector<Tensor> grads = leaves.Grads();
    results.insert(results.end(), grads.begin(), grads.end());
    return results;
  };
  const std::vector<Tensor> plain = run(false), recomputed = run(true);
  for (std::size_t i = 0; i < plain.size(); ++i)
    ExpectSameBits(plain[i], recomputed[i]);
}

TEST_P(Fp8LinearTest, MistakesAreErrors) {
  const Leaves leaves(device(), DataType::kFloat32, 16, 32, 48, 16);
  const States states = MakeStates(device());
  EXPECT_THROW(Fp8Linear(leaves.x, leaves.proj_weight, {}, states.first), Error);
  EXPECT_THROW(Fp8Linear(leaves.x, leaves.fc_weight, leaves.proj_bias, states.first), Error);
  EXPECT_THROW(Fp8Linear(To(leaves.x, DataType::kFloat64), leaves.fc_weight, {}, states.first),
               Error);
  const Tensor y = Fp8Linear(leaves.x, leaves.fc_weight, {}, states.first);
  states.scales->Update();
  EXPECT_THROW(Backward(Sum(y)), Error);
}

}  // namespace
}  // namespace infini_train
