#include "infini_train/trainer/step/run_pace.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace infini_train::trainer {

RunPace::RunPace(const optim::LrSchedule& schedule, std::int64_t num_steps, double minutes)
    : schedule_(schedule),
      num_steps_(num_steps),
      time_limit_(60.0 * minutes),
      start_(std::chrono::steady_clock::now()) {}

double RunPace::TimeUsed() const {
  if (time_limit_ <= 0.0) return 0.0;
  const std::chrono::duration<double> used = std::chrono::steady_clock::now() - start_;
  return used.count() / time_limit_;
}

bool RunPace::IsOver(std::int64_t step) const {
  return (num_steps_ > 0 && step >= num_steps_) || TimeUsed() >= 1.0;
}

double RunPace::LearningRate(std::int64_t step) const {
  std::int64_t position = step;
  if (step >= schedule_.warmup_steps) {
    const double by_time = TimeUsed() * static_cast<double>(schedule_.decay_steps);
    position = std::max(position, static_cast<std::int64_t>(by_time));
  }
  return schedule_.At(position);
}

void RunPace::AddStep(double seconds) {
  seconds_per_step_ =
      seconds_per_step_ == 0.0 ? seconds : 0.95 * seconds_per_step_ + 0.05 * seconds;
}

std::int64_t RunPace::TotalSteps(std::int64_t step) const {
  if (num_steps_ > 0) return num_steps_;
  if (seconds_per_step_ == 0.0) return step;
  return step + static_cast<std::int64_t>(std::ceil(SecondsLeft(step) / seconds_per_step_));
}

double RunPace::SecondsLeft(std::int64_t step) const {
  double left = std::numeric_limits<double>::infinity();
  if (num_steps_ > 0) left = seconds_per_step_ * static_cast<double>(num_steps_ - step);
  if (time_limit_ > 0.0) left = std::min(left, time_limit_ * std::max(0.0, 1.0 - TimeUsed()));
  return left;
}

}  // namespace infini_train::trainer
