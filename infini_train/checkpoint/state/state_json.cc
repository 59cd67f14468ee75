#include "infini_train/checkpoint/state/state_json.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "infini_train/core/json/json_node.h"
#include "infini_train/core/json/untrusted_json.h"

namespace infini_train::checkpoint {
namespace {

constexpr std::uint64_t kFormatVersion = 1;
/// Beyond any run, and exact in every number that a step is made into.
constexpr std::int64_t kMaxStep = std::int64_t{1} << 53;

}  // namespace

std::string DumpStateJson(const TrainingState& state, bool has_fp8_state) {
  nlohmann::ordered_json json;
  json["version"] = kFormatVersion;
  json["step"] = state.step;
  json["optimizer"] = state.optimizer;
  if (!state.optimizer.empty()) json["optimizer_step"] = state.optimizer_step;
  if (has_fp8_state) json["fp8"] = true;
  json["random"]["seed"] = state.random.seed;
  json["random"]["offset"] = state.random.offset;
  json["data"] =
      state.data_state.empty() ? nlohmann::json() : ParseJson(state.data_state, "data state");
  return json.dump(2) + "\n";
}

StateJson ParseStateJson(std::string_view text, const std::string& source) {
  StateJson content;
  TrainingState& state = content.state;
  const nlohmann::json json = ParseJson(text, source);
  const JsonNode root(json, source);
  if (const JsonNode version = root.Required("version"); version.Unsigned() != kFormatVersion)
    version.FailExpected(fmt::format("{}", kFormatVersion));
  state.step = root.Required("step").Index(kMaxStep + 1);
  state.optimizer = root.Required("optimizer").String();
  if (!state.optimizer.empty()) {
    const JsonNode steps = root.Optional("optimizer_step");
    state.optimizer_step = steps.is_null() ? state.step : steps.Index(state.step + 1);
  }
  content.has_fp8_state = root.BoolOr("fp8", false);
  const JsonNode random = root.Required("random");
  state.random.seed = random.Required("seed").Unsigned();
  state.random.offset = random.Required("offset").Unsigned();
  const JsonNode data = root.Optional("data");
  if (!json.contains("data")) data.Fail("missing");
  if (!data.is_null()) state.data_state = data.value().dump();
  return content;
}

}  // namespace infini_train::checkpoint
