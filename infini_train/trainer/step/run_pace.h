#pragma once

#include <chrono>
#include <cstdint>

#include "infini_train/core/api.h"
#include "infini_train/optim/lr_scheduler.h"

/// How far a training run has come, by its steps and by the clock.
namespace infini_train::trainer {

class INFINI_TRAIN_API RunPace {
 public:
  /// The run ends after `num_steps` or `minutes`, whichever comes first; one of them may be 0, for
  /// no limit.
  RunPace(const optim::LrSchedule& schedule, std::int64_t num_steps, double minutes);

  /// Time counts from here on.
  void Start() { start_ = std::chrono::steady_clock::now(); }

  /// Whether no step is left after `step` of them.
  bool IsOver(std::int64_t step) const;
  /// Of the step after `step` of them. With a time limit the schedule runs by whichever is further,
  /// steps or time, once it is warm.
  double LearningRate(std::int64_t step) const;

  /// Notes how long a step took. What follows needs one.
  void AddStep(double seconds);
  /// Steps of the whole run after `step` of them: an estimate where time alone is the limit.
  std::int64_t TotalSteps(std::int64_t step) const;
  /// By the pace of the last steps.
  double SecondsLeft(std::int64_t step) const;

 private:
  /// Share of the time limit that is used up; 0 without a limit.
  double TimeUsed() const;

  optim::LrSchedule schedule_;
  std::int64_t num_steps_;
  double time_limit_;  ///< in seconds; 0: none
  std::chrono::steady_clock::time_point start_;
  double seconds_per_step_ = 0.0;
};

}  // namespace infini_train::trainer
