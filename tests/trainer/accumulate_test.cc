#include "infini_train/trainer/step/accumulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/optim/optimizer.h"
#include "tests/trainer/tiny_run.h"

namespace infini_train::trainer {
namespace {

constexpr std::int64_t kLength = 8;

/// A sequence of which the first `count` targets count.
TokenBatch Sequence(std::int64_t count, std::int64_t seed) {
  TokenBatch batch;
  batch.batch_size = 1;
  batch.sequence_length = kLength;
  for (std::int64_t t = 0; t < kLength; ++t) {
    batch.inputs.push_back((seed * 17 + t * 5) % kTinyVocabulary);
    batch.targets.push_back(t < count ? (seed * 11 + t) % kTinyVocabulary : TokenBatch::kIgnore);
  }
  batch.num_targets = count;
  return batch;
}

/// Sequences put together, `size` to a micro-batch.
std::vector<TokenBatch> Split(std::span<const TokenBatch> sequences, std::size_t size) {
  std::vector<TokenBatch> batches;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (i % size == 0) batches.emplace_back().sequence_length = kLength;
    TokenBatch& batch = batches.back();
    ++batch.batch_size;
    batch.num_targets += sequences[i].num_targets;
    batch.inputs.insert(batch.inputs.end(), sequences[i].inputs.begin(), sequences[i].inputs.end());
    batch.targets.insert(batch.targets.end(), sequences[i].targets.begin(),
                         sequences[i].targets.end());
  }
  return batches;
}

std::vector<DeviceBatch> OnCpu(const std::vector<TokenBatch>& batches) {
  std::vector<DeviceBatch> result;
  for (const TokenBatch& batch : batches)
    result.push_back(ToDevice(batch, Device()));
  return result;
}

/// Loss, gradient norm and the parameters after one clipped step of SGD.
std::vector<double> Step(const std::vector<TokenBatch>& batches,
                         std::optional<DataType> autocast = std::nullopt) {
  const models::Model model = models::CreateModel(TinyConfig(), 3);
  const Tensor loss = AccumulateGradients(model, OnCpu(batches), autocast);
  const std::vector<Tensor> parameters = model.module->Parameters();
  const optim::GradientNorm norm = optim::ComputeGradientNorm(parameters, 0.5);
  optim::Sgd optimizer(std::vector<optim::ParameterGroup>{{model.module->NamedParameters(), 0.0}});
  optimizer.Step(1.0, norm.factor);
  std::vector<double> result = {loss.Item(), norm.norm.Item()};
  for (const Tensor& parameter : parameters) {
    for (const float value : parameter.ToVector<float>())
      result.push_back(value);
  }
  return result;
}

void ExpectClose(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_NEAR(a[0], b[0], tolerance * b[0]) << "loss";
  EXPECT_NEAR(a[1], b[1], tolerance * b[1]) << "gradient norm";
  for (std::size_t i = 2; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance) << "parameter value " << i;
}

const std::vector<TokenBatch> kSequences = {Sequence(1, 1), Sequence(7, 2), Sequence(3, 3),
                                            Sequence(5, 4)};

// A mean over micro-batches of their means would weigh the one target of the first as much as the
// seven of the second (huggingface/transformers#34191).
TEST(AccumulateGradients, IsOneMeanOverAllTargetsHoweverTheyAreSplit) {
  const auto whole = Step(Split(kSequences, 4));
  ExpectClose(Step(Split(kSequences, 2)), whole, 1e-6);
  ExpectClose(Step(Split(kSequences, 1)), whole, 1e-6);
  // Targets of 64 classes in a new model cost about ln 64 each.
  EXPECT_NEAR(whole[0], std::log(64.0), 0.3);
}

TEST(AccumulateGradients, IsOneMeanUnderAutocast) {
  const auto whole = Step(Split(kSequences, 4), DataType::kBFloat16);
  ExpectClose(Step(Split(kSequences, 2), DataType::kBFloat16), whole, 1e-2);
  ExpectClose(Step(Split(kSequences, 1), DataType::kBFloat16), whole, 1e-2);
}

TEST(AccumulateGradients, DividesAShortWindowByItsOwnTargets) {
  const std::vector<TokenBatch> two(kSequences.begin(), kSequences.begin() + 2);
  ExpectClose(Step(Split(two, 1)), Step(Split(two, 2)), 1e-6);
}

TEST(AccumulateGradients, AMicroBatchWithoutTargetsChangesNothing) {
  std::vector<TokenBatch> with_empty = Split(kSequences, 1);
  with_empty.insert(with_empty.begin() + 1, Sequence(0, 9));
  EXPECT_EQ(Step(with_empty), Step(Split(kSequences, 1)));
}

TEST(AccumulateGradients, WithoutAnyTargetThereIsNoLossAndNoGradient) {
  const models::Model model = models::CreateModel(TinyConfig(), 3);
  EXPECT_FALSE(AccumulateGradients(model, OnCpu({Sequence(0, 1), Sequence(0, 2)}), {}).defined());
  for (const Tensor& parameter : model.module->Parameters())
    EXPECT_FALSE(parameter.grad().defined());
}

// Each micro-batch has a load-balancing loss, of which the step has the mean.
TEST(AccumulateGradients, AddsTheMeanOfTheLoadBalancingLosses) {
  const double coefficient = TinyConfigWithExperts().transformer.router_aux_loss_coef;
  const auto run = [&](const std::vector<TokenBatch>& batches, bool balances) {
    models::ModelConfig config = TinyConfigWithExperts();
    config.transformer.output_router_logits = balances;
    const models::Model model = models::CreateModel(config, 3);
    Tensor sums;
    const Tensor loss = AccumulateGradients(model, OnCpu(batches), {}, nullptr, &sums);
    std::vector<double> numbers = {loss.Item()};
    for (const float value : sums.ToVector<float>())
      numbers.push_back(value);
    return numbers;
  };
  std::vector<TokenBatch> batches = Split(kSequences, 1);
  const std::vector<double> cross_entropy = run(batches, false);
  batches.insert(batches.begin(), Sequence(0, 9));
  const std::vector<double> numbers = run(batches, true);
  // Loss and its part, and of two layers the loads of four experts, entropy and tokens.
  ASSERT_EQ(numbers.size(), 2u + 2u * 6u);
  double mean = 0.0;
  for (const TokenBatch& batch : Split(kSequences, 1))
    mean += run({batch}, true)[1] / 4.0;
  EXPECT_NEAR(numbers[1], mean, 1e-6);
  EXPECT_NEAR(numbers[0], cross_entropy[0] + coefficient * mean, 1e-6);
  for (const std::size_t first : {2u, 8u}) {
    EXPECT_EQ(numbers[first] + numbers[first + 1] + numbers[first + 2] + numbers[first + 3],
              2 * 4 * kLength);
    EXPECT_EQ(numbers[first + 5], 4 * kLength);
  }
}

TEST(AccumulateGradients, NotingRoutersChangesNoGradient) {
  const auto gradients = [](bool notes) {
    const models::Model model = models::CreateModel(TinyConfigWithExperts(), 3);
    Tensor sums;
    AccumulateGradients(model, OnCpu(Split(kSequences, 2)), {}, nullptr, notes ? &sums : nullptr);
    EXPECT_EQ(sums.defined(), notes);
    std::vector<std::vector<float>> values;
    for (const Tensor& parameter : model.module->Parameters())
      values.push_back(parameter.grad().ToVector<float>());
    return values;
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

// Two classes, micro-batches of one and three targets.
TEST(AccumulateGradients, ItsRuleOnTwoLogits) {
  const Tensor b = Tensor::FromVector<float>({1, 0}, {2});
  b.set_requires_grad();
  double total = 0.0;
  for (const std::vector<std::int64_t>& labels :
       {std::vector<std::int64_t>{0, -100, -100, -100}, std::vector<std::int64_t>{1, 1, 1, -100}}) {
    const Tensor targets = Tensor::FromVector(labels, {4});
    const Tensor loss = CrossEntropy(Expand(b, {4, 2}), targets, Reduction::kSum) * 0.25;
    Backward(loss);
    total += loss.Item();
  }
  EXPECT_NEAR(total, 1.06326169, 1e-6);
  EXPECT_NEAR(b.grad().ToVector<float>()[0], 0.48105858, 1e-6);
  EXPECT_NEAR(b.grad().ToVector<float>()[1], -0.48105858, 1e-6);
  optim::Sgd(std::vector<optim::ParameterGroup>{{{{"b", b}}, 0.0}}).Step(1.0);
  EXPECT_NEAR(b.ToVector<float>()[0], 0.51894142, 1e-6);
  EXPECT_NEAR(b.ToVector<float>()[1], 0.48105858, 1e-6);
}

// Of two micro-batches the second has no target (pytorch/pytorch#70348).
TEST(AccumulateGradients, IgnoredRowsHaveExactlyNoGradient) {
  const Tensor first = Tensor::FromVector<float>({1, 2, 3, 0, 0, 0}, {2, 3});
  const Tensor second = Tensor::FromVector<float>({5, 1, 1, 1, 5, 1}, {2, 3});
  first.set_requires_grad();
  second.set_requires_grad();
  const Tensor loss =
      CrossEntropy(first, Tensor::FromVector<std::int64_t>({2, -100}, {2}), Reduction::kSum) +
      CrossEntropy(second, Tensor::FromVector<std::int64_t>({-100, -100}, {2}), Reduction::kSum);
  EXPECT_NEAR(loss.Item(), 0.40760596, 1e-6);
  Backward(loss);
  EXPECT_THAT(first.grad().ToVector<float>(),
              ::testing::Pointwise(::testing::FloatNear(1e-6f),
                                   {0.09003057f, 0.24472847f, -0.33475904f, 0.0f, 0.0f, 0.0f}));
  EXPECT_THAT(second.grad().ToVector<float>(), ::testing::Each(0.0f));
}

}  // namespace
}  // namespace infini_train::trainer
