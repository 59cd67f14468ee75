// When a run ends, and at which learning rate it goes on, by steps and by time.

#include "infini_train/trainer/step/run_pace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

namespace infini_train::trainer {
namespace {

constexpr double kLong = 1e6;                   // minutes
constexpr double kShort = 0.02 / 60.0;          // 20 ms
constexpr std::chrono::milliseconds kOver(25);  // longer than that

optim::LrSchedule Linear(std::int64_t decay_steps) {
  return {.style = optim::LrDecayStyle::kLinear,
          .learning_rate = 1.0,
          .warmup_steps = 2,
          .decay_steps = decay_steps};
}

TEST(RunPace, EndsWithItsSteps) {
  const RunPace pace(Linear(10), 10, 0.0);
  EXPECT_FALSE(pace.IsOver(9));
  EXPECT_TRUE(pace.IsOver(10));
}

TEST(RunPace, EndsWithItsTime) {
  RunPace pace(Linear(10), 0, kShort);
  std::this_thread::sleep_for(kOver);
  EXPECT_TRUE(pace.IsOver(0));
  pace = RunPace(Linear(10), 10, kLong);
  pace.Start();
  EXPECT_FALSE(pace.IsOver(9));
  EXPECT_TRUE(pace.IsOver(10));
}

TEST(RunPace, TimeMovesTheScheduleOnOnceItIsWarm) {
  const RunPace pace(Linear(1000), 1000, kShort);
  std::this_thread::sleep_for(kOver);
  EXPECT_EQ(pace.LearningRate(1), Linear(1000).At(1));
  EXPECT_EQ(pace.LearningRate(2), 0.0);
  const RunPace by_steps(Linear(1000), 1000, 0.0);
  EXPECT_EQ(by_steps.LearningRate(500), Linear(1000).At(500));
}

TEST(RunPace, EstimatesWhatIsLeft) {
  RunPace pace(Linear(100), 100, 0.0);
  pace.AddStep(2.0);
  EXPECT_EQ(pace.TotalSteps(10), 100);
  EXPECT_EQ(pace.SecondsLeft(10), 180.0);
  pace.AddStep(4.0);
  EXPECT_DOUBLE_EQ(pace.SecondsLeft(90), 21.0);

  RunPace timed(Linear(100), 0, 1.0);
  EXPECT_EQ(timed.TotalSteps(3), 3);
  timed.AddStep(10.0);
  EXPECT_EQ(timed.TotalSteps(3), 9);
  EXPECT_NEAR(timed.SecondsLeft(3), 60.0, 5.0);

  RunPace both(Linear(100), 4, 1.0);
  both.AddStep(1.0);
  EXPECT_EQ(both.SecondsLeft(3), 1.0);
}

}  // namespace
}  // namespace infini_train::trainer
