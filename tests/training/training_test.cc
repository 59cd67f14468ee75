// A tiny GPT-2 is trained by the program's own trainer on the device under test, and on the CPU.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "infini_train/core/device/graph.h"
#include "infini_train/core/file.h"
#include "tests/common/device_test.h"
#include "tests/trainer/tiny_run.h"

namespace infini_train::trainer {
namespace {

constexpr int kSteps = 20;

class TrainingTest : public DeviceTest {
 protected:
  /// Twenty steps of two micro-batches on the device, saved in `name`.
  TrainOptions Options(const std::string& name) const {
    TrainOptions options = run_.Options();
    options.device = device().ToString();
    options.num_iteration = kSteps;
    options.total_batch_size = 32;
    options.learning_rate = 3e-3;
    options.lr_decay_style = "cosine";
    options.lr_warmup_iters = 3;
    options.lr_decay_iters = kSteps;
    options.save = run_ / name;
    options.metrics_file = run_ / (name + ".jsonl");
    return options;
  }

  /// Options(name) on the CPU.
  TrainOptions OnCpu(const std::string& name) const {
    TrainOptions options = Options(name);
    options.device = "cpu";
    return options;
  }

  /// A number of each step, as the metrics file has it.
  std::vector<double> Metric(const std::string& name, const char* key = "loss") const {
    std::vector<double> values;
    for (const auto& line : ReadMetrics(run_ / (name + ".jsonl")))
      values.push_back(line.at(key).get<double>());
    return values;
  }

  void ExpectSameLosses(const std::string& a, const std::string& b, double tolerance) const {
    const std::vector<double> first = Metric(a);
    const std::vector<double> second = Metric(b);
    ASSERT_EQ(first.size(), second.size());
    for (std::size_t i = 0; i < first.size(); ++i)
      EXPECT_NEAR(first[i], second[i], tolerance * std::fabs(second[i])) << "step " << i + 1;
  }

  const TinyRun run_;
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(TrainingTest);

TEST_P(TrainingTest, LossesAreTheCpus) {
  RunTrain(Options("device"));
  RunTrain(OnCpu("cpu"));
  const std::vector<double> losses = Metric("device");
  ASSERT_EQ(losses.size(), static_cast<std::size_t>(kSteps));
  EXPECT_LT(losses.back(), losses.front() - 0.2) << "nothing was learnt";
  ExpectSameLosses("device", "cpu", 1e-5);
}

TEST_P(TrainingTest, LossesAreTheCpusWithDropout) {
  TrainOptions options = Options("device");
  options.dropout = 0.2;
  RunTrain(options);
  options = OnCpu("cpu");
  options.dropout = 0.2;
  RunTrain(options);
  ExpectSameLosses("device", "cpu", 1e-5);
}

TEST_P(TrainingTest, LossesAreTheCpusInBFloat16) {
  TrainOptions options = Options("device");
  options.dtype = "bfloat16";
  RunTrain(options);
  options = OnCpu("cpu");
  options.dtype = "bfloat16";
  RunTrain(options);
  ExpectSameLosses("device", "cpu", 1e-2);
  // Which is not to say that bfloat16 was not used.
  RunTrain(OnCpu("float32"));
  EXPECT_NE(Metric("device"), Metric("float32"));
}

TEST_P(TrainingTest, TwoRunsAreIdentical) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    for (const char* name : {"first", "second"}) {
      TrainOptions options = Options(name);
      options.dtype = dtype;
      options.dropout = 0.2;
      RunTrain(options);
    }
    ExpectSameCheckpoint(Checkpoint(run_ / "first", kSteps), Checkpoint(run_ / "second", kSteps));
    EXPECT_EQ(ReadMetrics(run_ / "first.jsonl"), ReadMetrics(run_ / "second.jsonl")) << dtype;
  }
}

TEST_P(TrainingTest, MicroBatchesEqualOneLargeBatch) {
  for (const int size : {4, 1}) {
    TrainOptions options = Options(size == 4 ? "large" : "small");
    options.batch_size = size;
    options.optimizer = "sgd";
    options.learning_rate = 0.1;
    options.num_iteration = 3;
    RunTrain(options);
  }
  ExpectSameLosses("small", "large", 1e-6);
  ExpectCloseWeights(Checkpoint(run_ / "large", 3), Checkpoint(run_ / "small", 3), 1e-6);
}

TEST_P(TrainingTest, RecomputedActivationsChangeNothing) {
  for (const bool recompute : {false, true}) {
    TrainOptions options = Options(recompute ? "recomputed" : "kept");
    options.num_iteration = 4;
    options.dropout = 0.2;
    options.activation_recompute = recompute;
    options.recompute_method = recompute ? "uniform" : "none";
    RunTrain(options);
  }
  EXPECT_EQ(ReadFile(Checkpoint(run_ / "kept", 4) + kWeights),
            ReadFile(Checkpoint(run_ / "recomputed", 4) + kWeights));
}

TEST_P(TrainingTest, AResumedRunEqualsOneWithoutABreak) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    TrainOptions options = Options("straight");
    options.dtype = dtype;
    options.dropout = 0.2;
    RunTrain(options);
    options.save = run_ / "resumed";
    options.metrics_file = run_ / "resumed.jsonl";
    options.num_iteration = kSteps / 2;
    RunTrain(options);
    options.num_iteration = kSteps;
    options.load = options.save;
    RunTrain(options);
    ExpectSameCheckpoint(Checkpoint(run_ / "straight", kSteps),
                         Checkpoint(run_ / "resumed", kSteps));
    EXPECT_EQ(ReadMetrics(run_ / "straight.jsonl"), ReadMetrics(run_ / "resumed.jsonl")) << dtype;
  }
}

TEST_P(TrainingTest, AResumedRunInFp8EqualsOneWithoutABreak) {
  for (const char* param_dtype : {"float32", "bfloat16"}) {
    TrainOptions options = Options("straight");
    options.dtype = "bfloat16";
    options.param_dtype = param_dtype;
    options.matmul_precision = "fp8";
    RunTrain(options);
    options.save = run_ / "resumed";
    options.metrics_file = run_ / "resumed.jsonl";
    options.num_iteration = kSteps / 2;
    RunTrain(options);
    options.num_iteration = kSteps;
    options.load = options.save;
    RunTrain(options);
    const std::string a = Checkpoint(run_ / "straight", kSteps);
    const std::string b = Checkpoint(run_ / "resumed", kSteps);
    ExpectSameCheckpoint(a, b);
    EXPECT_EQ(ReadFile(a + kFp8Scales), ReadFile(b + kFp8Scales));
    EXPECT_EQ(ReadMetrics(run_ / "straight.jsonl"), ReadMetrics(run_ / "resumed.jsonl"));
    std::filesystem::remove_all(run_ / "resumed");
    std::filesystem::remove(run_ / "resumed.jsonl");
  }
}

TEST_P(TrainingTest, CapturedStepsChangeNothing) {
  if (!DeviceGraph::IsSupported(device())) GTEST_SKIP() << "this device has no graphs";
  for (const char* graph : {"on", "off"}) {
    TrainOptions options = Options(graph);
    options.graph = graph;
    options.dropout = 0.2;
    options.optimizer = "sgd";
    options.momentum = 0.9;
    options.num_iteration = kSteps / 2;
    options.input_val_bin = {run_ / "val.bin"};
    options.val_loss_every = 3;
    options.save_interval = 4;
    EXPECT_THAT(RunTrain(options).output,
                ::testing::HasSubstr(options.graph == "on" ? "| steps captured into a graph\n"
                                                           : "| steps not captured\n"));
    options.num_iteration = kSteps;
    options.load = options.save;
    RunTrain(options);
  }
  ExpectSameCheckpoint(Checkpoint(run_ / "on", kSteps), Checkpoint(run_ / "off", kSteps));
  EXPECT_EQ(ReadMetrics(run_ / "on.jsonl"), ReadMetrics(run_ / "off.jsonl"));
}

TEST_P(TrainingTest, LossesInFp8AreThoseInBFloat16) {
  for (const char* name : {"fp8", "bfloat16"}) {
    TrainOptions options = Options(name);
    options.dtype = "bfloat16";
    options.matmul_precision = options.save.ends_with("fp8") ? "fp8" : "fp32";
    RunTrain(options);
  }
  ExpectSameLosses("fp8", "bfloat16", 1e-2);
  EXPECT_NE(Metric("fp8"), Metric("bfloat16"));
}

TEST_P(TrainingTest, CapturedFp8StepsChangeNothing) {
  if (!DeviceGraph::IsSupported(device())) GTEST_SKIP() << "this device has no graphs";
  for (const char* graph : {"on", "off"}) {
    TrainOptions options = Options(graph);
    options.graph = graph;
    options.dtype = "bfloat16";
    options.matmul_precision = "fp8";
    // Its forward passes are between those of training, with the weights that replays have changed.
    options.input_val_bin = {run_ / "val.bin"};
    options.val_loss_every = 3;
    RunTrain(options);
  }
  ExpectSameCheckpoint(Checkpoint(run_ / "on", kSteps), Checkpoint(run_ / "off", kSteps));
  EXPECT_EQ(ReadMetrics(run_ / "on.jsonl"), ReadMetrics(run_ / "off.jsonl"));
}

TEST_P(TrainingTest, CheckpointsOpenOnTheOtherDevice) {
  RunTrain(OnCpu("straight"));
  for (const bool ends_on_cpu : {true, false}) {
    const std::string name = ends_on_cpu ? "device_then_cpu" : "cpu_then_device";
    TrainOptions first = ends_on_cpu ? Options(name) : OnCpu(name);
    first.num_iteration = kSteps / 2;
    RunTrain(first);
    TrainOptions second = ends_on_cpu ? OnCpu(name) : Options(name);
    second.load = second.save;
    RunTrain(second);
    ExpectSameLosses(name, "straight", 1e-5);
    ExpectCloseWeights(Checkpoint(run_ / name, kSteps), Checkpoint(run_ / "straight", kSteps),
                       1e-3);
  }
}

TEST_P(TrainingTest, TheMemoryOfAStepIsTheSameInEveryStep) {
  const auto peaks = [&] {
    std::vector<double> values;
    std::istringstream text(ReadFile(run_ / "memory.jsonl"));
    for (std::string line; std::getline(text, line);)
      values.push_back(nlohmann::json::parse(line).at("peak_used_bytes").get<double>());
    return values;
  };
  RunTrain(Options("memory"));
  const std::vector<double> used = peaks();
  ASSERT_EQ(used.size(), static_cast<std::size_t>(kSteps));
  EXPECT_GT(used[5], 0);
  EXPECT_EQ(used.back(), used[5]) << "memory grows from step to step";
}

}  // namespace
}  // namespace infini_train::trainer
