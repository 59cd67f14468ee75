#include "infini_train/optim/lr_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "infini_train/core/error.h"
#include "tests/core/child_process.h"

namespace infini_train::optim {
namespace {

// W warm-up and N decay steps.
constexpr std::int64_t kW = 10;
constexpr std::int64_t kN = 110;
constexpr double kPeak = 3e-3;
constexpr double kFloor = 3e-4;
constexpr double kInit = 1e-4;

LrSchedule Schedule(LrDecayStyle style) {
  LrSchedule schedule;
  schedule.style = style;
  schedule.learning_rate = kPeak;
  schedule.min_lr = kFloor;
  schedule.warmup_steps = kW;
  schedule.warmup_init = kInit;
  schedule.decay_steps = kN;
  schedule.Validate();
  return schedule;
}

using Corners = std::vector<std::pair<std::int64_t, double>>;

void ExpectRates(const LrSchedule& schedule, const Corners& corners) {
  for (const auto& [step, rate] : corners) {
    EXPECT_NEAR(schedule.At(step), rate, 1e-15) << ToString(schedule.style) << " at step " << step;
  }
}

const double kAtEndOfWarmup = kInit + (kPeak - kInit) * 9 / 10;

TEST(LrSchedule, Constant) {
  ExpectRates(Schedule(LrDecayStyle::kConstant), {{0, kInit},
                                                  {kW - 1, kAtEndOfWarmup},
                                                  {kW, kPeak},
                                                  {kN - 1, kPeak},
                                                  {kN, kPeak},
                                                  {kN + 1, kPeak}});
}

TEST(LrSchedule, Linear) {
  ExpectRates(Schedule(LrDecayStyle::kLinear), {{0, kInit},
                                                {kW - 1, kAtEndOfWarmup},
                                                {kW, kPeak},
                                                {60, (kPeak + kFloor) / 2},
                                                {kN - 1, kFloor + (kPeak - kFloor) / 100},
                                                {kN, kFloor},
                                                {kN + 1, kFloor},
                                                {1'000'000, kFloor}});
}

TEST(LrSchedule, Cosine) {
  const double before_end =
      kFloor + 0.5 * (1 + std::cos(std::numbers::pi * 99 / 100)) * (kPeak - kFloor);
  ExpectRates(Schedule(LrDecayStyle::kCosine), {{0, kInit},
                                                {kW - 1, kAtEndOfWarmup},
                                                {kW, kPeak},
                                                {60, (kPeak + kFloor) / 2},
                                                {kN - 1, before_end},
                                                {kN, kFloor},
                                                {kN + 1, kFloor}});
}

TEST(LrSchedule, InverseSquareRoot) {
  ExpectRates(Schedule(LrDecayStyle::kInverseSquareRoot), {{0, kInit},
                                                           {kW - 1, kAtEndOfWarmup},
                                                           {kW, kPeak},
                                                           {40, kPeak / 2},
                                                           {kN - 1, kPeak * std::sqrt(10.0 / 109)},
                                                           {kN, kPeak * std::sqrt(10.0 / 110)},
                                                           {kN + 1, kFloor}});
}

TEST(LrSchedule, InverseSquareRootWithoutWarmupAndAtTheFloor) {
  LrSchedule schedule = Schedule(LrDecayStyle::kInverseSquareRoot);
  schedule.warmup_steps = 0;
  ExpectRates(schedule, {{0, kPeak}, {1, kPeak}, {4, kPeak / 2}, {100, kFloor}, {kN, kFloor}});
}

TEST(LrSchedule, WarmupStableDecay) {
  LrSchedule schedule = Schedule(LrDecayStyle::kWarmupStableDecay);
  schedule.stable_steps = 80;
  schedule.Validate();
  ExpectRates(schedule, {{0, kInit},
                         {kW - 1, kAtEndOfWarmup},
                         {kW, kPeak},
                         {90, kPeak},
                         {91, kPeak - (kPeak - kFloor) / 20},
                         {kN - 1, kFloor + (kPeak - kFloor) / 20},
                         {kN, kFloor},
                         {kN + 1, kFloor}});
}

TEST(LrSchedule, WarmupStableDecayThatNeverDecays) {
  LrSchedule schedule = Schedule(LrDecayStyle::kWarmupStableDecay);
  schedule.stable_steps = kN - kW;
  schedule.Validate();
  ExpectRates(schedule, {{kW, kPeak}, {kN - 1, kPeak}, {kN, kFloor}});
}

TEST(LrSchedule, WithoutWarmupTheFirstStepHasThePeak) {
  for (const auto style : {LrDecayStyle::kConstant, LrDecayStyle::kLinear, LrDecayStyle::kCosine,
                           LrDecayStyle::kInverseSquareRoot, LrDecayStyle::kWarmupStableDecay}) {
    LrSchedule schedule = Schedule(style);
    schedule.warmup_steps = 0;
    EXPECT_DOUBLE_EQ(schedule.At(0), kPeak) << ToString(style);
  }
}

TEST(LrSchedule, NamesRoundTripAndOthersAreRefused) {
  for (const char* name : {"constant", "linear", "cosine", "inverse-square-root", "wsd"}) {
    EXPECT_EQ(ToString(ParseLrDecayStyle(name)), name);
  }
  EXPECT_ERROR(ParseLrDecayStyle("cosin"),
               "'cosin' is no learning-rate decay style; expected one of constant, linear, cosine, "
               "inverse-square-root, wsd");
}

TEST(LrSchedule, ValidationSaysExpectedAndFound) {
  const auto invalid = [](auto change, const char* message) {
    LrSchedule schedule = Schedule(LrDecayStyle::kCosine);
    change(schedule);
    EXPECT_ERROR(schedule.Validate(), message);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  invalid([](LrSchedule& s) { s.learning_rate = -1; }, "expected a rate of 0 or more, got -1");
  invalid([&](LrSchedule& s) { s.learning_rate = nan; }, "got nan");
  invalid([&](LrSchedule& s) { s.learning_rate = infinity; }, "got inf");
  invalid([](LrSchedule& s) { s.min_lr = 0.1; }, "expected 0 <= min_lr <= 0.003, got 0.1");
  invalid([&](LrSchedule& s) { s.min_lr = nan; }, "min_lr");
  invalid([](LrSchedule& s) { s.warmup_init = 0.2; }, "lr_warmup_init <= 0.003, got 0.2");
  invalid([](LrSchedule& s) { s.warmup_init = -0.2; }, "lr_warmup_init");
  invalid([](LrSchedule& s) { s.warmup_steps = kN; }, "warm-up steps < 110 (decay steps), got 110");
  invalid([](LrSchedule& s) { s.warmup_steps = -1; }, "got -1");
  invalid([](LrSchedule& s) { s.stable_steps = kN - kW + 1; }, "got 10 + 101");
  invalid([](LrSchedule& s) { s.stable_steps = -1; }, "got 10 + -1");
}

}  // namespace
}  // namespace infini_train::optim
