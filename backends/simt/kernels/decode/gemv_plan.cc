#include "backends/simt/kernels/decode/gemv_plan.h"

#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "backends/simt/dialect.h"
#include "infini_train/core/error.h"

namespace infini_train::simt {
namespace {

constexpr GemvPlan kDefaultPlan{.lanes = 256, .blocks_per_processor = 2};

GemvPlan ReadPlan() {
  const char* const text = std::getenv("INFINI_TRAIN_GEMV_PLAN");
  if (text == nullptr || *text == '\0') return kDefaultPlan;
  const std::string_view all = text;
  const char* const end = all.data() + all.size();
  GemvPlan plan{};
  const auto [x, error] = std::from_chars(all.data(), end, plan.lanes);
  if (error == std::errc() && x != end && *x == 'x') {
    const auto [rest, second_error] = std::from_chars(x + 1, end, plan.blocks_per_processor);
    if (second_error == std::errc() && rest == end && plan.lanes > 0 &&
        plan.lanes <= GemvPlan::kMaxLanes && plan.lanes % kGroupWidth == 0 &&
        plan.blocks_per_processor > 0 && plan.blocks_per_processor <= GemvPlan::kMaxBlocks)
      return plan;
  }
  throw Error("INFINI_TRAIN_GEMV_PLAN: expected <lanes>x<blocks>, lanes a multiple of " +
              std::to_string(kGroupWidth) + " up to " + std::to_string(GemvPlan::kMaxLanes) +
              " and at most " + std::to_string(GemvPlan::kMaxBlocks) + " blocks, got '" + text +
              "'");
}

}  // namespace

const GemvPlan& GetGemvPlan() {
  static const GemvPlan plan = ReadPlan();
  return plan;
}

}  // namespace infini_train::simt
