#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/trainer/profile/profile_report.h"
#include "infini_train/trainer/profile/step_profiler.h"
#include "tests/core/child_process.h"
#include "tests/trainer/tiny_run.h"

namespace infini_train::trainer {
namespace {

using ::testing::HasSubstr;

TEST(ProfileSteps, AreAsWrittenOrThreeAfterTheWarmUp) {
  const auto parse = [](const std::string& text, std::int64_t done, std::int64_t last) {
    const StepRange range = ParseProfileSteps(text, done, last);
    return std::to_string(range.first) + ":" + std::to_string(range.last);
  };
  EXPECT_EQ(parse("", 0, 1000), "11:13");
  EXPECT_EQ(parse("", 500, 1000), "511:513");
  EXPECT_EQ(parse("", 500, 0), "511:513");
  EXPECT_EQ(parse("", 0, 10), "6:8");
  EXPECT_EQ(parse("", 0, 2), "2:2");
  EXPECT_EQ(parse("", 0, 1), "1:1");
  EXPECT_EQ(parse("3:5", 0, 5), "3:5");
  EXPECT_EQ(parse("7", 6, 0), "7:7");
  EXPECT_ERROR(ParseProfileSteps("5:3", 0, 10), "expected FIRST:LAST or one step, got 5:3");
  EXPECT_ERROR(ParseProfileSteps("3-5", 0, 10), "got 3-5");
  EXPECT_ERROR(ParseProfileSteps(":", 0, 10), "got :");
  EXPECT_ERROR(ParseProfileSteps("3:11", 0, 10), "expected steps from 1 to 10, got 3:11");
  EXPECT_ERROR(ParseProfileSteps("4", 4, 0), "expected steps from 5 on, got 4");
}

/// One step of 100 us: a call of 60 us with one of 20 us inside, a call of 10 us, one on a thread.
OpProfile Example() {
  OpProfile profile;
  profile.steps = {{5, 0.0, 100.0}};
  const auto add = [&](OpId op, int parent, double begin, double duration, OpCost cost) {
    OpRecord& record = profile.ops.emplace_back();
    record.op = op;
    record.parent = parent;
    record.begin = record.host_begin = begin;
    record.duration = record.host_duration = duration;
    record.cost = cost;
    record.tensors = "float32 [" + std::to_string(profile.ops.size()) + "]";
  };
  add(OpId::kLinearCrossEntropy, -1, 0.0, 60.0, {4e3, 9e6});
  add(OpId::kGemm, 0, 10.0, 20.0, {6e3, 8e6});
  add(OpId::kAdd, -1, 60.0, 10.0, {2e6, 0.0});
  add(OpId::kGemm, -1, 80.0, 5.0, {1e3, 1e6});
  profile.ops.back().thread = 1;
  return profile;
}

TEST(ProfileReport, WhatIsInsideOfACallIsNotCountedTwice) {
  const std::vector<ProfileRow> rows = SummarizeOps(Example(), false);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].op, "LinearCrossEntropy");
  EXPECT_EQ(rows[0].microseconds, 40.0);
  EXPECT_EQ(rows[0].flops, 1e6);
  EXPECT_EQ(rows[0].bytes, 0.0);
  EXPECT_EQ(rows[1].op, "Gemm");
  EXPECT_EQ(rows[1].calls, 2);
  EXPECT_EQ(rows[1].microseconds, 25.0);
  EXPECT_EQ(rows[1].flops, 9e6);
  EXPECT_EQ(rows[2].op, "Add");
  EXPECT_EQ(IdleMicroseconds(Example()), 25.0);
  EXPECT_EQ(SummarizeOps(Example(), true).size(), 4u);
}

TEST(ProfileReport, TheTableHasSharesAndRates) {
  EXPECT_EQ(FormatOps(Example()),
            "steps 5 to 5 on cpu, times of a step\n\n"
            "op                    calls         ms   share     GB/s  TFLOP/s\n"
            "LinearCrossEntropy        1      0.040   40.0%             0.025\n"
            "Gemm                      2      0.025   25.0%     0.28     0.36\n"
            "Add                       1      0.010   10.0%      200\n"
            "(idle)                           0.025   25.0%\n"
            "total                     4      0.100  100.0%\n");
  EXPECT_THAT(FormatProfile(Example()),
              HasSubstr("Gemm                      1      0.020   20.0%"));
  EXPECT_THAT(FormatProfile(Example()), HasSubstr("  float32 [2]\n"));
}

TEST(ProfileReport, OtherDevicesAndFallbacksAreTold) {
  OpProfile profile = Example();
  profile.device = Device(DeviceType::kCUDA, 1);
  for (OpRecord& record : profile.ops)
    record.device = profile.device;
  profile.ops[0].fell_back = true;
  profile.ops[1].device = Device();
  const std::vector<ProfileRow> rows = SummarizeOps(profile, false);
  EXPECT_EQ(rows[0].op, "LinearCrossEntropy (on the CPU)");
  EXPECT_EQ(rows[0].microseconds, 60.0) << "what the CPU did meanwhile is a part of it";
  EXPECT_EQ(rows[2].op, "Gemm");
  EXPECT_EQ(rows[2].calls, 1);
}

TEST(ProfileReport, TheTraceHasEveryCallOnTheDeviceAndOnTheHost) {
  const auto trace = nlohmann::json::parse(FormatTrace(Example()));
  int calls[2] = {};
  std::string names;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") {
      names += event.at("args").at("name").get<std::string>() + ";";
      continue;
    }
    ASSERT_EQ(event.at("ph"), "X");
    if (event.at("name") == "step 5") {
      EXPECT_EQ(event.at("dur"), 100.0);
      continue;
    }
    ++calls[event.at("pid").get<int>()];
    EXPECT_GE(event.at("ts"), 0.0);
    EXPECT_GT(event.at("dur"), 0.0);
    EXPECT_THAT(event.at("args").at("tensors").get<std::string>(), HasSubstr("float32 ["));
  }
  EXPECT_EQ(calls[0], 4);
  EXPECT_EQ(calls[1], 4);
  EXPECT_EQ(names, "cpu;steps;host;cpu, stream 1;");
}

/// The numbers of the first column in milliseconds of a table's rows, without the last: the total.
double SumOfRows(std::istream& table, double* total) {
  double sum = 0.0;
  for (std::string line; std::getline(table, line) && !line.empty();) {
    std::istringstream words(line);
    std::string name;
    std::string calls;
    double milliseconds = 0.0;
    words >> name;
    if (name != "(idle)") words >> calls;
    if (!(words >> milliseconds)) continue;
    if (name == "total") {
      *total = milliseconds;
    } else {
      sum += milliseconds;
    }
  }
  return sum;
}

std::vector<double> LossesOf(const std::string& metrics_file) {
  std::vector<double> losses;
  for (const nlohmann::json& metrics : ReadMetrics(metrics_file))
    losses.push_back(metrics.at("loss"));
  return losses;
}

TEST(TrainProfile, TheTableSumsUpAndNothingElseChanges) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.num_iteration = 8;
  options.metrics_file = run / "plain.jsonl";
  ASSERT_EQ(RunTrain(options).status, 0);
  options.metrics_file = run / "profiled.jsonl";
  options.profile = run / "some/folder";
  const Outcome outcome = RunTrain(options);
  ASSERT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, HasSubstr("steps 5 to 7 on cpu"));

  std::istringstream table(ReadFile(options.profile + "/profile.txt"));
  std::string line;
  std::getline(table, line);
  std::getline(table, line);
  double total = 0.0;
  const double sum = SumOfRows(table, &total);
  EXPECT_GT(total, 0.0);
  EXPECT_NEAR(sum, total, 0.001 * 60) << "each row is rounded to a microsecond";
  const auto trace = nlohmann::json::parse(ReadFile(options.profile + "/trace.json"));
  EXPECT_GT(trace.at("traceEvents").size(), 100u);
  EXPECT_EQ(LossesOf(run / "plain.jsonl"), LossesOf(run / "profiled.jsonl"));
}

TEST(TrainProfile, BadOptionsAreErrorsBeforeTheFirstStep) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.profile = run / "train.bin/folder";
  EXPECT_ERROR(Train(options, stderr), "cannot create the folder");
  options.profile = run / "folder";
  options.profile_steps = "2:9";
  EXPECT_ERROR(Train(options, stderr), "expected steps from 1 to 4, got 2:9");
  options.profile = "";
  EXPECT_ERROR(Train(options, stderr),
               "profile_steps: expected a folder for the profile (--profile)");
}

}  // namespace
}  // namespace infini_train::trainer
