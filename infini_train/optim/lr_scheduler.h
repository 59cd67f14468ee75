#pragma once

#include <cstdint>
#include <string_view>

#include "infini_train/core/api.h"

namespace infini_train::optim {

enum class LrDecayStyle : std::uint8_t {
  kConstant,
  kLinear,
  kCosine,
  kInverseSquareRoot,
  kWarmupStableDecay,
};

/// "constant", "linear", "cosine", "inverse-square-root", "wsd". Throws Error naming them on
/// anything else.
INFINI_TRAIN_API LrDecayStyle ParseLrDecayStyle(std::string_view text);
INFINI_TRAIN_API std::string_view ToString(LrDecayStyle style);

/// The learning rate as a function of the step alone, so that resuming needs no state but the step.
struct LrSchedule {
  LrDecayStyle style = LrDecayStyle::kConstant;
  double learning_rate = 1e-3;  ///< peak
  double min_lr = 0.0;          ///< floor of the decay
  std::int64_t warmup_steps = 0;
  double warmup_init = 0.0;       ///< rate of step 0 when warming up
  std::int64_t decay_steps = 0;   ///< length of the whole schedule, warm-up included
  std::int64_t stable_steps = 0;  ///< wsd: steps at the peak between warm-up and decay

  /// Throws Error unless 0 <= warmup_steps < decay_steps, rates are not negative, and init and
  /// floor are at most the peak.
  INFINI_TRAIN_API void Validate() const;

  /// The rate of a step, counted from 0. With W warm-up and N decay steps: s < W gives init + (peak
  /// - init) s / W; afterwards u = s - W and M = N - W, and linear is peak + (floor - peak) min(u /
  /// M, 1), cosine floor + (1 + cos(π u / M)) (peak - floor) / 2 up to u = M and floor beyond,
  /// inverse-square-root max(floor, peak √(max(W, 1) / max(s, 1))) up to s = N and floor beyond,
  /// wsd the peak for stable_steps and then linear to the floor at N.
  INFINI_TRAIN_API double At(std::int64_t step) const;
};

}  // namespace infini_train::optim
