// A tiny Mixtral is trained by the program's own trainer on the device under test, and on the CPU.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "infini_train/core/device/graph.h"
#include "infini_train/core/file.h"
#include "tests/common/device_test.h"
#include "tests/trainer/tiny_run.h"

namespace infini_train::trainer {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 6;

class ExpertTrainingTest : public DeviceTest {
 protected:
  /// Steps of two micro-batches on the device, saved in `name`.
  TrainOptions Options(const std::string& name) const {
    TrainOptions options = run_.Options();
    options.model = run_ / "experts";
    options.device = device().ToString();
    options.num_iteration = kSteps;
    options.total_batch_size = 32;
    options.learning_rate = 3e-3;
    options.save = run_ / name;
    options.metrics_file = run_ / (name + ".jsonl");
    return options;
  }

  void ExpectSameNumbers(const std::string& a, const std::string& b, double tolerance) const {
    const auto first = ReadMetrics(run_ / (a + ".jsonl"));
    const auto second = ReadMetrics(run_ / (b + ".jsonl"));
    ASSERT_EQ(first.size(), static_cast<std::size_t>(kSteps));
    ASSERT_EQ(first.size(), second.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      for (const char* key : {"loss", "aux_loss", "router_entropy"}) {
        const double value = second[i].at(key);
        EXPECT_NEAR(first[i].at(key), value, tolerance * std::fabs(value))
            << key << " of step " << i + 1;
      }
    }
  }

  const TinyRun run_;
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(ExpertTrainingTest);

TEST_P(ExpertTrainingTest, NumbersAreTheCpus) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    SCOPED_TRACE(dtype);
    TrainOptions options = Options("device");
    options.dtype = dtype;
    RunTrain(options);
    options = Options("cpu");
    options.device = "cpu";
    options.dtype = dtype;
    RunTrain(options);
    ExpectSameNumbers("device", "cpu", options.dtype == "float32" ? 1e-5 : 1e-2);
  }
}

TEST_P(ExpertTrainingTest, SaysHowExpertsAreUsed) {
  const std::string output = RunTrain(Options("run")).output;
  EXPECT_THAT(output, HasSubstr("| aux loss "));
  EXPECT_THAT(output, HasSubstr("| expert load "));
  EXPECT_THAT(output, HasSubstr("expert load of the last step, in percent of each layer's choices\n"
                                "h.0  "));
  for (const auto& line : ReadMetrics(run_ / "run.jsonl")) {
    EXPECT_NEAR(line.at("aux_loss"), 2.0, 1.0);
    EXPECT_GE(line.at("expert_imbalance"), line.at("expert_imbalance/h.1"));
    EXPECT_GT(line.at("router_entropy/h.0"), 0.0);
  }
}

TEST_P(ExpertTrainingTest, RecomputedActivationsChangeNothing) {
  for (const bool recompute : {false, true}) {
    TrainOptions options = Options(recompute ? "recomputed" : "kept");
    options.activation_recompute = recompute;
    options.recompute_method = recompute ? "uniform" : "none";
    RunTrain(options);
  }
  EXPECT_EQ(ReadFile(Checkpoint(run_ / "kept", kSteps) + kWeights),
            ReadFile(Checkpoint(run_ / "recomputed", kSteps) + kWeights));
  EXPECT_EQ(ReadMetrics(run_ / "kept.jsonl"), ReadMetrics(run_ / "recomputed.jsonl"));
}

TEST_P(ExpertTrainingTest, CapturedStepsChangeNothing) {
  if (!DeviceGraph::IsSupported(device())) GTEST_SKIP() << "this device has no graphs";
  for (const char* graph : {"on", "off"}) {
    TrainOptions options = Options(graph);
    options.graph = graph;
    RunTrain(options);
  }
  ExpectSameCheckpoint(Checkpoint(run_ / "on", kSteps), Checkpoint(run_ / "off", kSteps));
  EXPECT_EQ(ReadMetrics(run_ / "on.jsonl"), ReadMetrics(run_ / "off.jsonl"));
}

TEST_P(ExpertTrainingTest, AResumedRunEqualsOneWithoutABreak) {
  RunTrain(Options("straight"));
  TrainOptions options = Options("resumed");
  options.num_iteration = kSteps / 2;
  RunTrain(options);
  options.num_iteration = kSteps;
  options.load = options.save;
  RunTrain(options);
  ExpectSameCheckpoint(Checkpoint(run_ / "straight", kSteps), Checkpoint(run_ / "resumed", kSteps));
}

}  // namespace
}  // namespace infini_train::trainer
