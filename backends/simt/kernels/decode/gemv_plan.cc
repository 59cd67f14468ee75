#include "backends/simt/kernels/decode/gemv_plan.h"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "backends/simt/dialect.h"
#include "infini_train/core/device/environment.h"
#include "infini_train/core/error.h"

namespace infini_train::simt {
namespace {

constexpr GemvPlan kDefaultPlan{.lanes = 512, .blocks_per_processor = 1};

/// Takes a number off the front of the text; false where there is none from `low` to `high`.
bool TakeNumber(std::string_view& text, int low, int high, int& number) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < low || number > high) return false;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return true;
}

bool TakeCross(std::string_view& text) {
  if (!text.starts_with('x')) return false;
  text.remove_prefix(1);
  return true;
}

GemvPlan ReadPlan() {
  const std::optional<std::string> value = GetEnvironment("INFINI_TRAIN_GEMV_PLAN");
  if (!value) return kDefaultPlan;
  std::string_view text = *value;
  GemvPlan plan{};
  if (TakeNumber(text, kMaxWarpSize, GemvPlan::kMaxLanes, plan.lanes) &&
      plan.lanes % kMaxWarpSize == 0 && TakeCross(text) &&
      TakeNumber(text, 1, GemvPlan::kMaxBlocks, plan.blocks_per_processor) && text.empty()) {
    return plan;
  }
  throw Error("INFINI_TRAIN_GEMV_PLAN: expected <lanes>x<blocks>, lanes a multiple of " +
              std::to_string(kMaxWarpSize) + " up to " + std::to_string(GemvPlan::kMaxLanes) +
              " and at most " + std::to_string(GemvPlan::kMaxBlocks) + " blocks, got '" + *value +
              "'");
}

}  // namespace

const GemvPlan& GetGemvPlan() {
  static const GemvPlan plan = ReadPlan();
  return plan;
}

}  // namespace infini_train::simt
