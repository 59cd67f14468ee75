#include "infini_train/trainer/step/step_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/graph.h"
#include "infini_train/core/error.h"
#include "infini_train/core/generator.h"
#include "infini_train/ops/op_recorder.h"
#include "infini_train/trainer/setup.h"
#include "infini_train/trainer/step/accumulate.h"
#include "tests/common/device_test.h"
#include "tests/core/child_process.h"
#include "tests/trainer/tiny_run.h"

namespace infini_train::trainer {
namespace {

using test::ToDoubles;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kSteps = 8;
constexpr std::int64_t kLength = 8;
constexpr std::int64_t kRows = 2;

/// A micro-batch whose first `count` targets count.
TokenBatch MakeBatch(std::int64_t seed, std::int64_t count = kRows * kLength) {
  TokenBatch batch;
  batch.batch_size = kRows;
  batch.sequence_length = kLength;
  batch.num_targets = count;
  for (std::int64_t i = 0; i < kRows * kLength; ++i) {
    batch.inputs.push_back((seed * 17 + i * 5) % kTinyVocabulary);
    batch.targets.push_back(i < count ? (seed * 11 + i) % kTinyVocabulary : TokenBatch::kIgnore);
  }
  return batch;
}

/// Two full micro-batches, others in each step.
std::vector<TokenBatch> FullStep(int step) {
  return {MakeBatch(2 * step), MakeBatch(2 * step + 1)};
}

/// As many samples in the positions of a micro-batch, of lengths that depend on the seed. The first
/// targets of each do not count.
TokenBatch PackedBatch(std::int64_t seed) {
  TokenBatch batch = MakeBatch(seed);
  batch.sample_lengths = {1 + seed % 5, 3, seed % 2, 2 + seed % 4};
  batch.num_targets = 0;
  std::size_t begin = 0;
  for (const std::int64_t length : batch.sample_lengths) {
    for (std::int64_t t = 0; t < length; ++t) {
      const bool counts = t >= length / 2;
      batch.num_targets += counts ? 1 : 0;
      if (!counts) batch.targets[begin + static_cast<std::size_t>(t)] = TokenBatch::kIgnore;
    }
    begin += static_cast<std::size_t>(length);
  }
  std::fill(batch.targets.begin() + static_cast<std::ptrdiff_t>(begin), batch.targets.end(),
            TokenBatch::kIgnore);
  return batch;
}

/// The same samples, each in a row of its own.
TokenBatch Unpacked(const TokenBatch& packed) {
  TokenBatch batch;
  batch.batch_size = static_cast<std::int64_t>(packed.sample_lengths.size());
  batch.sequence_length = packed.sequence_length;
  batch.num_targets = packed.num_targets;
  const auto size = static_cast<std::size_t>(batch.batch_size * batch.sequence_length);
  batch.inputs.assign(size, 0);
  batch.targets.assign(size, TokenBatch::kIgnore);
  std::int64_t begin = 0;
  for (std::int64_t row = 0; row < batch.batch_size; ++row) {
    const std::int64_t length = packed.sample_lengths[static_cast<std::size_t>(row)];
    const std::int64_t to = row * batch.sequence_length;
    std::copy_n(packed.inputs.begin() + begin, length, batch.inputs.begin() + to);
    std::copy_n(packed.targets.begin() + begin, length, batch.targets.begin() + to);
    begin += length;
  }
  return batch;
}

struct Setting {
  bool sgd = false;
  std::optional<DataType> autocast = std::nullopt;
  bool recompute = false;
  double dropout = 0.2;
  double grad_clip = 0.5;
  bool experts = false;
  bool targets_vary = false;
};

/// A tiny GPT-2, or a Mixtral with noise at its routers.
models::ModelConfig ConfigOf(const Setting& setting) {
  if (!setting.experts) return TinyConfig();
  models::ModelConfig config = TinyConfigWithExperts();
  config.transformer.router_jitter_noise = 0.1;
  return config;
}

/// A tiny model in training.
struct Training {
  Training(Device device, const Setting& setting, GraphMode graph)
      : model(models::CreateModel(ConfigOf(setting), 3, {device})) {
    ManualSeed(11);
    model.module->SetDropout(setting.dropout);
    if (setting.recompute) {
      model.module->set_activation_checkpointing(
          {nn::ActivationCheckpointing::Method::kUniform, 1});
    }
    auto groups = optim::DecayMatricesOnly(model.module->NamedParameters(), 0.1);
    if (setting.sgd) {
      optimizer = std::make_unique<optim::Sgd>(groups, optim::Sgd::Options{.momentum = 0.9});
    } else {
      optimizer = std::make_unique<optim::AdamW>(groups);
    }
    runner = std::make_unique<StepRunner>(
        model, *optimizer,
        StepOptions{setting.autocast, setting.grad_clip, graph, setting.targets_vary},
        [this](const std::string& text) { notices.push_back(text); });
  }

  StepResult Step(const std::vector<TokenBatch>& batches) {
    ++steps;
    const double warm_up = std::min(1.0, 0.2 * steps);
    const StepResult result = runner->Run(batches, 0.01 * warm_up);
    numbers.push_back(result.loss);
    numbers.push_back(result.grad_norm);
    if (result.routers) {
      numbers.push_back(result.routers->load_balancing_loss);
      for (const RouterReport::Layer& layer : result.routers->layers) {
        numbers.push_back(layer.entropy);
        numbers.insert(numbers.end(), layer.load.begin(), layer.load.end());
      }
    }
    replayed.push_back(runner->replayed());
    return result;
  }

  /// Losses and norms so far, parameters, the optimizer's state, and where random numbers go on.
  std::vector<std::vector<double>> Everything() const {
    std::vector<std::vector<double>> result = {numbers};
    for (const Tensor& parameter : model.module->Parameters())
      result.push_back(ToDoubles(parameter));
    for (const auto& [name, tensor] : optimizer->StateDict())
      result.push_back(ToDoubles(tensor));
    result.push_back({static_cast<double>(optimizer->step()),
                      static_cast<double>(DefaultGenerator().state().offset)});
    return result;
  }

  models::Model model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<StepRunner> runner;
  std::vector<std::string> notices;
  std::vector<double> numbers;
  std::vector<bool> replayed;
  int steps = 0;
};

class StepRunnerTest : public DeviceTest {
 protected:
  static bool HasGraphs() { return DeviceGraph::IsSupported(device()); }

  /// Runs `body` on a training with and one without a graph; expects the same of both, to the bit.
  static void ExpectTheSame(const Setting& setting, const std::function<void(Training&)>& body) {
    Training captured(device(), setting, GraphMode::kOn);
    body(captured);
    const auto numbers = captured.Everything();
    Training plain(device(), setting, GraphMode::kOff);
    body(plain);
    EXPECT_TRUE(numbers == plain.Everything()) << "captured steps give other numbers";
    EXPECT_EQ(captured.numbers, plain.numbers);
    EXPECT_THAT(plain.replayed, ::testing::Each(false));
    EXPECT_THAT(captured.replayed, ::testing::Contains(true)) << "nothing was captured";
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(StepRunnerTest);

#define SKIP_WITHOUT_GRAPHS() \
  if (!HasGraphs()) GTEST_SKIP() << "this device has no graphs"

TEST_P(StepRunnerTest, AStepWhoseOpsAreRecordedRunsWithoutTheGraph) {
  SKIP_WITHOUT_GRAPHS();
  ExpectTheSame({}, [](Training& training) {
    OpRecorder recorder(device());
    for (int step = 0; step < kSteps; ++step) {
      if (step == 5) recorder.BeginStep(step);
      training.Step(FullStep(step));
      if (step == 5) recorder.EndStep();
    }
    EXPECT_GT(recorder.Take().ops.size(), 50u);
    EXPECT_FALSE(training.replayed[5]);
    EXPECT_EQ(training.replayed[6], training.runner->captures());
  });
}

TEST_P(StepRunnerTest, CapturedStepsGiveTheSameBits) {
  SKIP_WITHOUT_GRAPHS();
  for (const bool sgd : {false, true}) {
    for (const std::optional<DataType> autocast :
         {std::optional<DataType>(), std::optional(DataType::kBFloat16)}) {
      for (const bool recompute : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << (sgd ? "sgd" : "adamw") << (autocast ? ", bfloat16" : "")
                     << (recompute ? ", recomputed" : ""));
        ExpectTheSame({sgd, autocast, recompute}, [](Training& training) {
          for (int step = 0; step < kSteps; ++step)
            training.Step(FullStep(step));
          EXPECT_THAT(training.notices, ::testing::IsEmpty());
        });
      }
    }
  }
}

TEST_P(StepRunnerTest, WithoutClippingAndDropout) {
  SKIP_WITHOUT_GRAPHS();
  ExpectTheSame({.dropout = 0.0, .grad_clip = 0.0}, [](Training& training) {
    for (int step = 0; step < kSteps; ++step)
      training.Step(FullStep(step));
  });
}

// How many rows each expert has differs from step to step, and is no part of the captured work.
TEST_P(StepRunnerTest, CapturedStepsOfExpertsGiveTheSameBits) {
  SKIP_WITHOUT_GRAPHS();
  for (const bool recompute : {false, true}) {
    ExpectTheSame({.recompute = recompute, .experts = true}, [](Training& training) {
      for (int step = 0; step < 5; ++step) {
        const StepResult result = training.Step(FullStep(step));
        ASSERT_TRUE(result.routers.has_value());
        EXPECT_EQ(result.routers->layers.size(), 2u);
      }
      EXPECT_THAT(training.notices, ::testing::IsEmpty());
    });
  }
}

TEST_P(StepRunnerTest, TellsWhatRoutersDid) {
  Training training(device(), {.experts = true}, GraphMode::kOff);
  const StepResult result = training.Step(FullStep(0));
  ASSERT_TRUE(result.routers.has_value());
  ASSERT_EQ(result.routers->layers.size(), 2u);
  EXPECT_NEAR(result.routers->load_balancing_loss, 2.0, 0.5);
  for (const RouterReport::Layer& layer : result.routers->layers) {
    ASSERT_EQ(layer.load.size(), 4u);
    EXPECT_NEAR(layer.load[0] + layer.load[1] + layer.load[2] + layer.load[3], 1.0, 1e-12);
    // New routers are hardly sure.
    EXPECT_NEAR(layer.entropy, std::log(4.0), 0.1);
  }
  EXPECT_FALSE(training.Step({MakeBatch(1, 0), MakeBatch(2, 0)}).routers.has_value());
  Training dense(device(), {}, GraphMode::kOff);
  EXPECT_FALSE(dense.Step(FullStep(0)).routers.has_value());
}

TEST_P(StepRunnerTest, TheThirdStepOfAKindIsCaptured) {
  SKIP_WITHOUT_GRAPHS();
  Training training(device(), {}, GraphMode::kAuto);
  EXPECT_TRUE(training.runner->captures());
  for (int step = 0; step < 4; ++step)
    training.Step(FullStep(step));
  training.Step({MakeBatch(1)});
  for (int step = 0; step < 3; ++step)
    training.Step(FullStep(step));
  EXPECT_THAT(training.replayed, ElementsAre(false, false, true, true, false, false, false, true));
  EXPECT_GT(training.runner->graph_bytes(), 0u);
}

// The divisor of the loss, and which micro-batches have one, are part of the captured work.
TEST_P(StepRunnerTest, StepsWithOtherTargetsAreRight) {
  SKIP_WITHOUT_GRAPHS();
  ExpectTheSame({}, [](Training& training) {
    for (int step = 0; step < 4; ++step)
      training.Step(FullStep(step));
    training.Step({MakeBatch(8), MakeBatch(9, 5)});
    training.Step(FullStep(5));
    training.Step({MakeBatch(10, 0), MakeBatch(11)});
    EXPECT_TRUE(training.Step({MakeBatch(12, 0), MakeBatch(13, 0)}).skipped);
    training.Step(FullStep(7));
    EXPECT_EQ(training.optimizer->step(), 9);
    if (!training.runner->captures()) return;
    EXPECT_THAT(training.replayed,
                ElementsAre(false, false, true, true, false, true, false, false, true));
    EXPECT_THAT(training.notices, ElementsAre(HasSubstr("another number of targets")));
  });
}

TEST_P(StepRunnerTest, StepsWhoseTargetsVaryAreAlike) {
  SKIP_WITHOUT_GRAPHS();
  for (const std::optional<DataType> autocast :
       {std::optional<DataType>(), std::optional(DataType::kBFloat16)}) {
    ExpectTheSame({.autocast = autocast, .targets_vary = true}, [](Training& training) {
      for (int step = 0; step < 5; ++step)
        training.Step({PackedBatch(2 * step), PackedBatch(2 * step + 1)});
      EXPECT_TRUE(training.Step({MakeBatch(1, 0), MakeBatch(2, 0)}).skipped);
      TokenBatch empty = PackedBatch(3);
      std::fill(empty.targets.begin(), empty.targets.end(), TokenBatch::kIgnore);
      std::fill(empty.sample_lengths.begin(), empty.sample_lengths.end(), 0);
      empty.num_targets = 0;
      training.Step({empty, PackedBatch(7)});
      EXPECT_THAT(training.notices, ::testing::IsEmpty());
      if (!training.runner->captures()) return;
      EXPECT_THAT(training.replayed, ElementsAre(false, false, true, true, true, false, true));
    });
  }
}

// Whether the count of targets is on the host or on the device, samples are packed or padded, and
// in one micro-batch or in several.
TEST_P(StepRunnerTest, PackedSamplesGiveTheLossAndGradientsOfPaddedOnes) {
  const std::vector<TokenBatch> packed = {PackedBatch(3), PackedBatch(6)};
  const std::vector<TokenBatch> padded = {Unpacked(packed[0]), Unpacked(packed[1])};
  const auto step = [](const std::vector<TokenBatch>& batches, bool targets_vary) {
    const models::Model model = models::CreateModel(TinyConfig(), 3, {device()});
    std::vector<DeviceBatch> tokens;
    double num_targets = 0.0;
    for (const TokenBatch& batch : batches) {
      tokens.push_back(ToDevice(batch, device()));
      num_targets += static_cast<double>(batch.num_targets);
    }
    const Tensor inverse =
        targets_vary ? Full({}, 1.0 / num_targets, DataType::kFloat32, device()) : Tensor();
    std::vector<std::vector<double>> result = {
        {AccumulateGradients(model, tokens, std::nullopt, nullptr, nullptr, inverse).Item()}};
    for (const Tensor& parameter : model.module->Parameters())
      result.push_back(ToDoubles(parameter.grad()));
    return result;
  };
  const auto expected = step(padded, false);
  EXPECT_NEAR(expected[0][0], std::log(kTinyVocabulary), 0.3);
  for (const bool targets_vary : {false, true}) {
    for (const auto& found : {step(packed, targets_vary), step(padded, targets_vary)}) {
      for (std::size_t i = 0; i < expected.size(); ++i) {
        double norm = 0.0;
        double difference = 0.0;
        for (std::size_t j = 0; j < expected[i].size(); ++j) {
          norm += expected[i][j] * expected[i][j];
          difference += std::pow(found[i][j] - expected[i][j], 2);
        }
        EXPECT_LE(std::sqrt(difference), 1e-6 * std::sqrt(norm)) << "loss or gradient " << i;
      }
    }
  }
}

// Validation, samples and checkpoints come between steps.
TEST_P(StepRunnerTest, OtherWorkBetweenStepsIsHarmless) {
  SKIP_WITHOUT_GRAPHS();
  ExpectTheSame({}, [](Training& training) {
    for (int step = 0; step < kSteps; ++step) {
      training.Step(FullStep(step));
      const NoGrad no_grad;
      training.model.module->Train(false);
      const DeviceBatch batch = ToDevice(MakeBatch(step), device());
      const Tensor loss = training.model.module->Loss(batch.inputs, batch.targets, 1.0);
      training.model.module->Train(true);
      training.numbers.push_back(loss.Item());
      for (const auto& [name, tensor] : training.optimizer->StateDict())
        ToDoubles(tensor);
    }
  });
}

// What the optimizer and the generator take over from a checkpoint reaches the captured step.
TEST_P(StepRunnerTest, AReplayGoesOnFromAnotherState) {
  SKIP_WITHOUT_GRAPHS();
  ExpectTheSame({}, [](Training& training) {
    for (int step = 0; step < 4; ++step)
      training.Step(FullStep(step));
    NamedTensors state = training.optimizer->StateDict();
    for (auto& [name, tensor] : state)
      tensor = Clone(tensor);
    const Generator::State random = DefaultGenerator().state();
    training.Step(FullStep(4));
    training.optimizer->LoadStateDict(state, 100);
    DefaultGenerator().set_state(random);
    training.Step(FullStep(5));
  });
}

TEST_P(StepRunnerTest, ALossThatIsNotFiniteLeavesEverythingAlone) {
  for (const GraphMode graph : {GraphMode::kOff, GraphMode::kAuto}) {
    Training training(device(), {}, graph);
    for (int step = 0; step < 4; ++step)
      training.Step(FullStep(step));
    {
      const NoGrad no_grad;
      FillInPlace(training.model.module->Parameters().back(), std::nan(""));
    }
    training.numbers.clear();
    const auto weights_and_state = [&] {
      std::vector<std::vector<double>> values = training.Everything();
      values.erase(values.begin());
      values.pop_back();
      for (std::vector<double>& list : values) {
        for (double& value : list) {
          if (std::isnan(value)) value = 1e300;
        }
      }
      return values;
    };
    const auto before = weights_and_state();
    const StepResult result = training.Step(FullStep(4));
    EXPECT_FALSE(result.IsFinite());
    EXPECT_EQ(training.runner->replayed(), graph == GraphMode::kAuto && HasGraphs());
    EXPECT_TRUE(weights_and_state() == before) << "something was written";
    EXPECT_EQ(training.optimizer->step(), 4);
    EXPECT_FALSE(training.model.module->Parameters().front().grad().defined());
  }
}

TEST_P(StepRunnerTest, WhatCannotBeCapturedRunsWithoutAGraphAndSaysWhy) {
  SKIP_WITHOUT_GRAPHS();
  const auto run = [](GraphMode graph) {
    Training training(device(), {}, graph);
    for (const auto& [name, module] : training.model.module->NamedModules()) {
      module->RegisterForwardHook([](nn::Module&, const Tensor&, const Tensor& output) {
        output.Detach().ToVector<float>();
        return Tensor();
      });
    }
    for (int step = 0; step < 5; ++step)
      training.Step(FullStep(step));
    EXPECT_EQ(training.notices.size(), graph == GraphMode::kAuto ? 1u : 0u);
    if (!training.notices.empty()) {
      EXPECT_THAT(training.notices[0], HasSubstr("steps are not captured into a graph: "));
    }
    EXPECT_FALSE(training.runner->captures());
    return training.Everything();
  };
  EXPECT_TRUE(run(GraphMode::kAuto) == run(GraphMode::kOff));
  EXPECT_THROW(run(GraphMode::kOn), Error);
}

TEST_P(StepRunnerTest, GraphsThatAreAskedForMustBeThere) {
  if (HasGraphs()) GTEST_SKIP() << "this device has graphs";
  EXPECT_ERROR(Training(device(), {}, GraphMode::kOn), "cannot capture work into graphs");
  Training training(device(), {}, GraphMode::kAuto);
  EXPECT_FALSE(training.runner->captures());
}

TEST_P(StepRunnerTest, MemoryDoesNotGrow) {
  for (const GraphMode graph : {GraphMode::kOff, GraphMode::kAuto}) {
    Training training(device(), {}, graph);
    MemoryStats settled;
    for (int step = 0; step < 150; ++step) {
      training.Step(FullStep(step % 7));
      if (step == 10) settled = allocator::Stats(device());
    }
    const MemoryStats stats = allocator::Stats(device());
    EXPECT_EQ(stats.provider_allocations, settled.provider_allocations);
    EXPECT_EQ(stats.allocated, settled.allocated);
    EXPECT_EQ(stats.reserved, settled.reserved);
  }
}

TEST(ParseGraphMode, NamesTheModes) {
  EXPECT_EQ(ParseGraphMode("off"), GraphMode::kOff);
  EXPECT_EQ(ParseGraphMode("auto"), GraphMode::kAuto);
  EXPECT_EQ(ParseGraphMode("on"), GraphMode::kOn);
  EXPECT_ERROR(ParseGraphMode("yes"), "graph: expected auto, on or off, got yes");
}

}  // namespace
}  // namespace infini_train::trainer
