// Whole training runs over ranks that are threads: the same numbers as one rank on the same data.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "infini_train/checkpoint/training_checkpoint.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/threads.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/parallel/ccl.h"
#include "tests/common/device_test.h"
#include "tests/common/errors.h"
#include "tests/trainer/tiny_run.h"

namespace infini_train::trainer {
namespace {

using test::MessageOf;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRows = 4;

class DataParallelTrainingTest : public DeviceTest {
 protected:
  /// Steps of 2 micro-batches of kRows rows over all ranks.
  TrainOptions Options(std::int64_t num_ranks) const {
    TrainOptions options = run_.Options();
    options.device = device().ToString();
    options.nthread_per_process = num_ranks;
    options.batch_size = kRows / num_ranks;
    options.total_batch_size = 2 * kRows * options.sequence_length;
    options.num_iteration = 20;
    options.learning_rate = 1e-3;
    options.dropout = 0.0;
    options.grad_clip = 1.0;
    // Several buckets.
    options.ddp_bucket_mb = 0.005;
    return options;
  }

  /// Ranks in process reduce by kernels of the device.
  static bool HasRanks(std::int64_t num_ranks) {
    const DeviceType type = device().type();
    if (device().is_cpu()) return true;
    if (GetDeviceGuardImpl(type).DeviceCount() - device().index() < num_ranks) return false;
    return parallel::HasCcl(type) ? parallel::GetCcl(type).Name() != "none"
                                  : HasKernel(type, OpId::kAdd);
  }

  /// The metrics of a run, step by step.
  std::vector<nlohmann::json> Metrics(TrainOptions options, const std::string& name) const {
    options.metrics_file = run_ / (name + ".jsonl");
    RunTrain(options);
    return ReadMetrics(options.metrics_file);
  }

  static void ExpectSameTraining(const std::vector<nlohmann::json>& a,
                                 const std::vector<nlohmann::json>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (const char* key : {"loss", "grad_norm"}) {
        const double expected = a[i].at(key);
        EXPECT_NEAR(b[i].at(key), expected, 1e-6 * std::fabs(expected)) << key << " of " << i + 1;
      }
    }
  }

  const TinyRun run_;
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(DataParallelTrainingTest);

TEST_P(DataParallelTrainingTest, HasTheLossesOfOneRankOnTheSameBatch) {
  const auto expected = Metrics(Options(1), "one");
  ASSERT_EQ(expected.size(), 20u);
  for (const std::int64_t num_ranks : {2, 4}) {
    if (!HasRanks(num_ranks)) continue;
    SCOPED_TRACE(num_ranks);
    ExpectSameTraining(expected, Metrics(Options(num_ranks), std::to_string(num_ranks)));
  }
}

// The same micro-batches, so the same load-balancing losses, whoever computes them.
TEST_P(DataParallelTrainingTest, HasTheExpertsOfOneRankOnTheSameMicroBatches) {
  if (!HasRanks(2)) GTEST_SKIP() << "needs 2 devices whose memory can be reduced";
  TrainOptions options = Options(1);
  options.model = run_ / "experts";
  options.batch_size = kRows / 2;
  options.num_iteration = 5;
  const auto expected = Metrics(options, "one");
  options.nthread_per_process = 2;
  const auto found = Metrics(options, "two");
  ExpectSameTraining(expected, found);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (const char* key : {"aux_loss", "router_entropy", "expert_imbalance"}) {
      const double value = expected[i].at(key);
      EXPECT_NEAR(found[i].at(key), value, 1e-6 * value) << key << " of " << i + 1;
    }
  }
}

TEST_P(DataParallelTrainingTest, RecomputesAndTrainsInBFloat16) {
  if (!HasRanks(2)) GTEST_SKIP() << "needs 2 devices whose memory can be reduced";
  const auto options = [&](int num_ranks) {
    TrainOptions result = Options(num_ranks);
    result.activation_recompute = true;
    result.dtype = result.param_dtype = "bfloat16";
    return result;
  };
  const auto expected = Metrics(options(1), "one");
  const auto found = Metrics(options(2), "two");
  ASSERT_EQ(expected.size(), found.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double loss = expected[i].at("loss");
    EXPECT_NEAR(found[i].at("loss"), loss, 1e-2 * loss);
  }
}

TEST_P(DataParallelTrainingTest, TwoRunsHaveTheSameBits) {
  if (!HasRanks(2)) GTEST_SKIP() << "needs 2 devices whose memory can be reduced";
  for (const char* name : {"first", "second"}) {
    TrainOptions options = Options(2);
    options.save = run_ / name;
    options.dropout = 0.1;
    RunTrain(options);
  }
  ExpectSameCheckpoint(Checkpoint(run_ / "first", 20), Checkpoint(run_ / "second", 20));
}

TEST_P(DataParallelTrainingTest, AnyNumberOfRanksGoesOnFromACheckpoint) {
  if (!HasRanks(2)) GTEST_SKIP() << "needs 2 devices whose memory can be reduced";
  // Inside the first epoch, whose windows are visited in the same order whatever the size of steps.
  constexpr int kSaved = 2;
  constexpr int kLast = 4;
  TrainOptions options = Options(2);
  options.num_iteration = kLast;
  options.save = run_ / "two";
  options.save_interval = kSaved;
  RunTrain(options);

  // One rank, once with as many rows and once with as many micro-batches more.
  for (const std::int64_t rows : {kRows, kRows / 2}) {
    TrainOptions resumed = Options(1);
    resumed.num_iteration = kLast;
    resumed.batch_size = rows;
    resumed.load = Checkpoint(run_ / "two", kSaved);
    resumed.save = run_ / ("one" + std::to_string(rows));
    RunTrain(resumed);
    ExpectCloseWeights(Checkpoint(resumed.save, kLast), Checkpoint(run_ / "two", kLast), 1e-4);
  }
}

TEST_P(DataParallelTrainingTest, ScalesOfFp8FollowTheTensorsOfAllRanks) {
  if (!HasRanks(2)) GTEST_SKIP() << "needs 2 devices whose memory can be reduced";
  const auto magnitudes = [&](int num_ranks) {
    TrainOptions options = Options(num_ranks);
    options.matmul_precision = "fp8";
    options.num_iteration = 1;
    options.save = run_ / ("fp8_" + std::to_string(num_ranks));
    RunTrain(options);
    std::map<std::string, std::vector<float>> result;
    for (const auto& [name, tensor] :
         checkpoint::LoadTrainingState(Checkpoint(options.save, 1)).fp8_state) {
      if (name.ends_with(".history")) result[name] = tensor.ToVector<float>();
    }
    return result;
  };
  const auto expected = magnitudes(1);
  const auto found = magnitudes(2);
  ASSERT_EQ(expected.size(), found.size());
  ASSERT_FALSE(expected.empty());
  for (const auto& [name, values] : expected) {
    const std::vector<float>& shared = found.at(name);
    ASSERT_EQ(shared.size(), values.size());
    // What the first step measures, each rank for itself, changes the numbers behind it a little.
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(shared[i], values[i], 0.03f * std::fabs(values[i])) << name << " " << i;
  }
}

TEST_P(DataParallelTrainingTest, RanksInFp8GoOnFromACheckpointWithTheSameBits) {
  if (!HasRanks(2)) GTEST_SKIP() << "needs 2 devices whose memory can be reduced";
  constexpr int kSaved = 2;
  constexpr int kLast = 4;
  TrainOptions options = Options(2);
  options.matmul_precision = "fp8";
  options.num_iteration = kLast;
  options.save = run_ / "whole";
  options.save_interval = kSaved;
  RunTrain(options);
  // Rank 1 has other data than rank 0, whose scales the checkpoint holds.
  options.load = Checkpoint(run_ / "whole", kSaved);
  options.save = run_ / "resumed";
  RunTrain(options);
  ExpectSameCheckpoint(Checkpoint(run_ / "whole", kLast), Checkpoint(run_ / "resumed", kLast));
}

TEST_P(DataParallelTrainingTest, RanksValidateTheirShares) {
  if (!HasRanks(2)) GTEST_SKIP() << "needs 2 devices whose memory can be reduced";
  const auto losses = [&](int num_ranks, std::int64_t max_steps) {
    TrainOptions options = Options(num_ranks);
    options.num_iteration = 3;
    options.val_loss_every = 2;
    options.val_max_steps = max_steps;
    options.input_val_bin = {run_ / "val.bin"};
    options.metrics_file = run_ / "validated.jsonl";
    RunTrain(options);
    std::vector<double> values;
    std::ifstream lines(options.metrics_file);
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record.contains("val_loss")) values.push_back(record["val_loss"]);
    }
    return values;
  };
  // All of it, whose last batch leaves ranks without a row, and a part.
  for (const std::int64_t max_steps : {0, 1}) {
    const std::vector<double> expected = losses(1, max_steps);
    ASSERT_EQ(expected.size(), 3u) << "before the first step, after the second, and at the end";
    const std::vector<double> found = losses(2, max_steps);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << i;
  }
}

TEST_P(DataParallelTrainingTest, SaysHowManyRanksThereAre) {
  if (!HasRanks(2)) GTEST_SKIP() << "needs 2 devices whose memory can be reduced";
  TrainOptions options = Options(2);
  options.num_iteration = 3;
  options.input_val_bin = {run_ / "val.bin"};
  const std::string output = RunTrain(options).output;
  EXPECT_THAT(output, AllOf(HasSubstr("2 ranks from " + device().ToString()),
                            HasSubstr("64 tokens a step (2 x 2 x 2 x 8)"),
                            HasSubstr("DP=2, TP=1, SP=1, PP=1)"), HasSubstr("val loss")));
  EXPECT_EQ(output.find("step    1/"), output.rfind("step    1/")) << "one rank prints";
}

TEST_P(DataParallelTrainingTest, AnErrorOnOneRankEndsAllWithItsMessage) {
  if (!HasRanks(2)) GTEST_SKIP() << "needs 2 devices whose memory can be reduced";
  TrainOptions options = Options(2);
  options.shuffle = false;
  // Tokens count up, and the last is the first beyond the vocabulary: the second rank's last
  // target.
  const std::string file = run_ / "bad.bin";
  test::WriteShard16(file, kTinyVocabulary + 1);
  options.input_bin = {file};
  const int threads = GetNumThreads();
  SetNumThreads(3);
  EXPECT_THAT(MessageOf([&] { RunTrain(options); }), AllOf(HasSubstr(file), HasSubstr("token 64")));
  EXPECT_EQ(GetNumThreads(), 3) << "the caller has its threads again";
  SetNumThreads(threads);
}

TEST_P(DataParallelTrainingTest, WhatIsNotFiniteIsReportedOnce) {
  if (!HasRanks(2)) GTEST_SKIP() << "needs 2 devices whose memory can be reduced";
  TrainOptions options = Options(2);
  options.learning_rate = 1e30;
  EXPECT_THAT(MessageOf([&] { RunTrain(options); }), HasSubstr("expected finite numbers"));
}

TEST_P(DataParallelTrainingTest, RanksNeedDevicesAndWork) {
  TrainOptions options = Options(1);
  options.nthread_per_process = 0;
  EXPECT_THAT(MessageOf([&] { RunTrain(options); }), HasSubstr("nthread_per_process: expected 1"));
  options.nthread_per_process = 1025;
  EXPECT_THAT(MessageOf([&] { RunTrain(options); }), HasSubstr("nthread_per_process: expected 1"));
  if (!HasRanks(2)) return;
  options = Options(2);
  options.total_batch_size = 3 * options.batch_size * options.sequence_length;
  EXPECT_THAT(MessageOf([&] { RunTrain(options); }),
              HasSubstr("batch_size * sequence_length * nthread_per_process = 2 * 8 * 2 = 32"));
  options = Options(2);
  options.graph = "on";
  EXPECT_THAT(MessageOf([&] { RunTrain(options); }), HasSubstr("graph: "));
}

}  // namespace
}  // namespace infini_train::trainer
