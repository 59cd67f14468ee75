#include "infini_train/trainer/profile/step_profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/trainer/profile/profile_report.h"

namespace infini_train::trainer {
namespace {

constexpr std::int64_t kWarmUpSteps = 10;
constexpr std::int64_t kSteps = 3;

std::optional<std::int64_t> ParseStep(std::string_view text) {
  std::int64_t step = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, step);
  if (error != std::errc() || rest != end) return std::nullopt;
  return step;
}

StepRange DefaultSteps(std::int64_t steps_done, std::int64_t last_step) {
  if (last_step == 0) return {steps_done + kWarmUpSteps + 1, steps_done + kWarmUpSteps + kSteps};
  const std::int64_t warm_up = std::min(kWarmUpSteps, (last_step - steps_done) / 2);
  const std::int64_t first = steps_done + warm_up + 1;
  return {first, std::min(first + kSteps - 1, last_step)};
}

}  // namespace

StepRange ParseProfileSteps(const std::string& text, std::int64_t steps_done,
                            std::int64_t last_step) {
  if (text.empty()) return DefaultSteps(steps_done, last_step);
  const std::string_view view = text;
  const std::size_t colon = view.find(':');
  const auto first = ParseStep(view.substr(0, colon));
  const auto last = colon == std::string_view::npos ? first : ParseStep(view.substr(colon + 1));
  if (!first || !last || *first > *last) {
    throw Error(fmt::format("profile_steps: expected FIRST:LAST or one step, got {}", text));
  }
  if (*first <= steps_done || (last_step > 0 && *last > last_step)) {
    throw Error(fmt::format("profile_steps: expected steps from {}{}, got {}", steps_done + 1,
                            last_step > 0 ? fmt::format(" to {}", last_step) : " on", text));
  }
  return {*first, *last};
}

StepProfiler::StepProfiler(std::filesystem::path folder, StepRange steps, Device device)
    : folder_(std::move(folder)), steps_(steps), recorder_(device) {
  CreateFolder(folder_);
}

// A recorded step is not replayed from a graph: the one before the first takes the memory for it.
void StepProfiler::BeforeStep(std::int64_t step) {
  if (step >= steps_.first - 1 && step <= steps_.last) recorder_.BeginStep(step);
}

void StepProfiler::AfterStep(std::int64_t step) {
  if (step < steps_.first - 1 || step > steps_.last) return;
  recorder_.EndStep();
  if (step < steps_.first) {
    recorder_.Take();
    return;
  }
  recorded_ = step;
  unwritten_ = true;
}

std::string StepProfiler::Write() {
  if (!std::exchange(unwritten_, false)) return "";
  const OpProfile profile = recorder_.Take();
  WriteFileAtomically((folder_ / "profile.txt").string(), FormatProfile(profile));
  WriteFileAtomically((folder_ / "trace.json").string(), FormatTrace(profile));
  return FormatOps(profile);
}

}  // namespace infini_train::trainer
