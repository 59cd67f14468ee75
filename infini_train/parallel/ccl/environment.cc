#include "infini_train/parallel/ccl/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "infini_train/core/error.h"

namespace infini_train::parallel {

std::chrono::milliseconds CclTimeout() {
  constexpr double kDefault = 600.0;
  constexpr double kMost = 1e9;
  double seconds = kDefault;
  if (const char* value = std::getenv("INFINI_TRAIN_CCL_TIMEOUT"); value != nullptr && *value) {
    const std::string_view text = value;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (!is_number || !(seconds > 0.0 && seconds <= kMost)) {
      throw Error(
          fmt::format("INFINI_TRAIN_CCL_TIMEOUT: expected seconds above 0, got '{}'", text));
    }
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(1e3 * seconds)));
}

bool CclChecks() {
  const char* value = std::getenv("INFINI_TRAIN_CCL_CHECK");
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "0") return false;
  if (text == "1") return true;
  throw Error(fmt::format("INFINI_TRAIN_CCL_CHECK: expected 0 or 1, got '{}'", text));
}

}  // namespace infini_train::parallel
