#include "infini_train/parallel/ccl/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "infini_train/core/device/environment.h"
#include "infini_train/core/error.h"

namespace infini_train::parallel {

std::chrono::milliseconds CclTimeout() {
  constexpr double kDefault = 600.0;
  constexpr double kMost = 1e9;
  double seconds = kDefault;
  if (const auto text = GetEnvironment("INFINI_TRAIN_CCL_TIMEOUT")) {
    const char* const end = text->data() + text->size();
    const auto [rest, error] = std::from_chars(text->data(), end, seconds);
    const bool is_number = error == std::errc() && rest == end;
    if (!is_number || !(seconds > 0.0 && seconds <= kMost)) {
      throw Error(
          fmt::format("INFINI_TRAIN_CCL_TIMEOUT: expected seconds above 0, got '{}'", *text));
    }
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(1e3 * seconds)));
}

bool CclChecks() {
  return GetEnvironmentSwitch("INFINI_TRAIN_CCL_CHECK").value_or(false);
}

}  // namespace infini_train::parallel
