// Transformers whose linear layers compute in FP8.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/nn/transformer.h"
#include "infini_train/ops/matmul_precision.h"
#include "tests/common/device_test.h"
#include "tests/nn/tiny_transformers.h"

namespace infini_train::nn {
namespace {

using test::ExpectSameBits;
using test::ToDoubles;

/// The process's policy for a scope.
class PrecisionGuard {
 public:
  explicit PrecisionGuard(MatmulPrecision precision) : previous_(GetMatmulPrecision()) {
    SetMatmulPrecision(precision);
  }
  ~PrecisionGuard() { SetMatmulPrecision(previous_); }
  PrecisionGuard(const PrecisionGuard&) = delete;
  PrecisionGuard& operator=(const PrecisionGuard&) = delete;

 private:
  MatmulPrecision previous_;
};

/// A model with parameters and data that are the same each time.
struct Trainee {
  Trainee(Device device, TransformerConfig config, DataType dtype = DataType::kFloat32)
      : model(config, {device, dtype}) {
    Generator generator(7);
    model.InitializeParameters(generator);
    ids = RandomInt({4, 8}, 0, config.vocab_size, DataType::kInt64, device, &generator);
    targets = RandomInt({4, 8}, 0, config.vocab_size, DataType::kInt64, device, &generator);
  }

  /// The gradients of `micro_batches` batches of one step.
  Tensor Step(int micro_batches = 1) {
    const Autocast autocast(DataType::kBFloat16);
    Tensor loss;
    for (int i = 0; i < micro_batches; ++i) {
      loss = model.Loss(ids, targets, 1.0 / static_cast<double>(ids.numel() * micro_batches));
      Backward(loss);
    }
    model.UpdateFp8Scales();
    return loss.Detach();
  }
  Tensor Evaluate() {
    const NoGrad no_grad;
    const Autocast autocast(DataType::kBFloat16);
    return model(ids);
  }
  std::vector<Tensor> Grads() const {
    std::vector<Tensor> grads;
    for (const Tensor& parameter : model.Parameters())
      grads.push_back(parameter.grad());
    return grads;
  }

  Transformer model;
  Tensor ids, targets;
};

/// The distance of a's gradients from b's, in lengths of b's.
double RelativeDistance(const Trainee& a, const Trainee& b) {
  const std::vector<Tensor> first = a.Grads(), second = b.Grads();
  double distance = 0, length = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::vector<double> x = ToDoubles(first[i]), y = ToDoubles(second[i]);
    for (std::size_t j = 0; j < x.size(); ++j) {
      distance += (x[j] - y[j]) * (x[j] - y[j]);
      length += y[j] * y[j];
    }
  }
  return std::sqrt(distance / length);
}

class Fp8TransformerTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Fp8TransformerTest);

TEST_P(Fp8TransformerTest, GradientsAreThoseOfBFloat16UpToTheFormatsErrors) {
  TransformerConfig relu = TinyGpt2();
  relu.activation = Activation::kRelu;
  TransformerConfig with_head = TinyGpt2();
  with_head.vocab_size = 32;
  for (const TransformerConfig& config : {TinyGpt2(), TinyQwen3(), relu, with_head}) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
      Trainee plain(device(), config, dtype), fp8(device(), config, dtype);
      const double expected = plain.Step().Item();
      const PrecisionGuard guard(MatmulPrecision::kFp8);
      EXPECT_NEAR(fp8.Step().Item(), expected, 0.01 * expected);
      EXPECT_LT(RelativeDistance(fp8, plain), 0.1);
      EXPECT_GT(RelativeDistance(fp8, plain), 0.005) << "FP8 was not used";
    }
  }
}

// Up to the rounding of the residual stream, which starts anew at a checkpoint, and what it makes
// of the formats' rounding.
TEST_P(Fp8TransformerTest, RecomputedActivationsAreTheSame) {
  const PrecisionGuard guard(MatmulPrecision::kFp8);
  Trainee plain(device(), TinyGpt2()), recomputed(device(), TinyGpt2());
  recomputed.model.set_activation_checkpointing({ActivationCheckpointing::Method::kUniform, 2});
  for (int step = 0; step < 2; ++step)
    EXPECT_NEAR(plain.Step(2).Item(), recomputed.Step(2).Item(), 1e-3);
  EXPECT_LT(RelativeDistance(plain, recomputed), 0.05);
}

TEST_P(Fp8TransformerTest, MicroBatchesAddUp) {
  const PrecisionGuard guard(MatmulPrecision::kFp8);
  Trainee once(device(), TinyGpt2()), twice(device(), TinyGpt2());
  once.Step(1);
  twice.Step(2);
  // Halves are exact; adding them rounds once.
  EXPECT_LT(RelativeDistance(twice, once), 1e-5);
}

TEST_P(Fp8TransformerTest, EvaluationChangesNothing) {
  const PrecisionGuard guard(MatmulPrecision::kFp8);
  Trainee plain(device(), TinyGpt2()), evaluated(device(), TinyGpt2());
  // Before the first step, within and between steps.
  const Tensor before = evaluated.Evaluate();
  for (int step = 0; step < 2; ++step) {
    ExpectSameBits(plain.Step(), evaluated.Step());
    ExpectSameBits(evaluated.Evaluate(), evaluated.Evaluate());
  }
  EXPECT_EQ(RelativeDistance(plain, evaluated), 0);
  EXPECT_EQ(before.shape(), (Dims{4, 8, 31}));
}

TEST_P(Fp8TransformerTest, ThePolicyMayChange) {
  Trainee run(device(), TinyGpt2());
  const Tensor plain = run.Evaluate();
  {
    const PrecisionGuard guard(MatmulPrecision::kFp8);
    EXPECT_NE(ToDoubles(run.Evaluate()), ToDoubles(plain));
  }
  ExpectSameBits(run.Evaluate(), plain);
}

// Where libraries take its sums.
TEST_P(Fp8TransformerTest, HeadHasScalesWhereTheVocabularyIsAMultipleOf16) {
  const PrecisionGuard guard(MatmulPrecision::kFp8);
  TransformerConfig config = TinyGpt2();
  for (const std::int64_t vocab_size : {31, 32}) {
    config.vocab_size = vocab_size;
    Trainee run(device(), config), resumed(device(), config);
    run.Step();
    const NamedTensors state = run.model.Fp8State();
    const bool has_head = std::any_of(state.begin(), state.end(), [](const auto& entry) {
      return entry.first == "lm_head.scale";
    });
    EXPECT_EQ(has_head, vocab_size == 32);
    resumed.model.LoadFp8State(state);
    ExpectSameBits(run.Step(), resumed.Step());
  }
}

// What a watched layer hands to its hook are numbers.
TEST_P(Fp8TransformerTest, HooksSeeWhatTheySeeOtherwise) {
  const PrecisionGuard guard(MatmulPrecision::kFp8);
  Trainee plain(device(), TinyGpt2()), watched(device(), TinyGpt2());
  int calls = 0;
  for (const auto& [name, module] : watched.model.NamedModules()) {
    if (!name.ends_with("c_attn") && !name.ends_with("ln_2")) continue;
    module->RegisterForwardHook([&](Module&, const Tensor& x, const Tensor& y) {
      ++calls;
      for (const Tensor& tensor : {x, y}) {
        for (const double value : ToDoubles(tensor))
          EXPECT_TRUE(std::isfinite(value));
      }
      return Tensor();
    });
  }
  EXPECT_NEAR(plain.Step().Item(), watched.Step().Item(), 1e-2);
  EXPECT_GT(calls, 0);
  EXPECT_LT(RelativeDistance(watched, plain), 0.05);
}

// Gradient checks run in float64, whatever the policy.
TEST_P(Fp8TransformerTest, Float64StaysFloat64) {
  Trainee run(device(), TinyGpt2(), DataType::kFloat64);
  const Tensor plain = run.Evaluate();
  const PrecisionGuard guard(MatmulPrecision::kFp8);
  ExpectSameBits(run.Evaluate(), plain);
}

}  // namespace
}  // namespace infini_train::nn
