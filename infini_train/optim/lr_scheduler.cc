#include "infini_train/optim/lr_scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "infini_train/core/error.h"

namespace infini_train::optim {
namespace {

constexpr std::array<std::string_view, 5> kStyleNames = {"constant", "linear", "cosine",
                                                         "inverse-square-root", "wsd"};

}  // namespace

LrDecayStyle ParseLrDecayStyle(std::string_view text) {
  for (std::size_t i = 0; i < kStyleNames.size(); ++i) {
    if (text == kStyleNames[i]) return static_cast<LrDecayStyle>(i);
  }
  throw Error(fmt::format("'{}' is no learning-rate decay style; expected one of {}", text,
                          fmt::join(kStyleNames, ", ")));
}

std::string_view ToString(LrDecayStyle style) {
  return kStyleNames[static_cast<std::size_t>(style)];
}

void LrSchedule::Validate() const {
  const auto require = [](bool condition, const std::string& message) {
    if (!condition) throw Error("learning-rate schedule: " + message);
  };
  require(learning_rate >= 0 && std::isfinite(learning_rate),
          fmt::format("expected a rate of 0 or more, got {}", learning_rate));
  require(min_lr >= 0 && min_lr <= learning_rate,
          fmt::format("expected 0 <= min_lr <= {}, got {}", learning_rate, min_lr));
  require(warmup_init >= 0 && warmup_init <= learning_rate,
          fmt::format("expected 0 <= lr_warmup_init <= {}, got {}", learning_rate, warmup_init));
  require(warmup_steps >= 0 && warmup_steps < std::max<std::int64_t>(decay_steps, 1),
          fmt::format("expected 0 <= warm-up steps < {} (decay steps), got {}", decay_steps,
                      warmup_steps));
  require(stable_steps >= 0 && warmup_steps + stable_steps <= decay_steps,
          fmt::format("expected warm-up and stable steps within {} (decay steps), got {} + {}",
                      decay_steps, warmup_steps, stable_steps));
}

double LrSchedule::At(std::int64_t step) const {
  const auto s = static_cast<double>(step);
  const auto warmup = static_cast<double>(warmup_steps);
  if (step < warmup_steps) return warmup_init + (learning_rate - warmup_init) * s / warmup;
  const double span = learning_rate - min_lr;
  // Share of the decay that is done, with `hold` steps at the peak first.
  const auto progress = [&](std::int64_t hold) {
    const std::int64_t length = decay_steps - warmup_steps - hold;
    if (length <= 0) return step >= decay_steps ? 1.0 : 0.0;
    const auto done = static_cast<double>(step - warmup_steps - hold);
    return std::clamp(done / static_cast<double>(length), 0.0, 1.0);
  };
  switch (style) {
    case LrDecayStyle::kConstant:
      return learning_rate;
    case LrDecayStyle::kLinear:
      return learning_rate - span * progress(0);
    case LrDecayStyle::kCosine:
      return min_lr + 0.5 * (1.0 + std::cos(std::numbers::pi * progress(0))) * span;
    case LrDecayStyle::kInverseSquareRoot:
      if (step > decay_steps) return min_lr;
      return std::max(min_lr, learning_rate * std::sqrt(std::max(warmup, 1.0) / std::max(s, 1.0)));
    case LrDecayStyle::kWarmupStableDecay:
      return learning_rate - span * progress(stable_steps);
  }
  return learning_rate;
}

}  // namespace infini_train::optim
