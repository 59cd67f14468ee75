#include "infini_train/models/lora/peft_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "infini_train/core/checklist/tensor_checklist.h"
#include "infini_train/core/file.h"
#include "infini_train/core/json/untrusted_json.h"
#include "infini_train/models/families/config_reader.h"

namespace infini_train::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "base_model.model.";

/// Fields that are read, and those that say nothing about what is computed (megatron_core and
/// qalora_group_size alone do not). Any other must have the value that means nothing.
constexpr std::string_view kKnownFields[] = {"auto_mapping",
                                             "base_model_name_or_path",
                                             "bias",
                                             "fan_in_fan_out",
                                             "inference_mode",
                                             "init_lora_weights",
                                             "lora_alpha",
                                             "lora_dropout",
                                             "megatron_core",
                                             "peft_type",
                                             "peft_version",
                                             "qalora_group_size",
                                             "r",
                                             "revision",
                                             "runtime_config",
                                             "target_modules",
                                             "task_type",
                                             "use_rslora",
                                             "ensure_weight_tying"};

bool MeansNothing(const nlohmann::json& value) {
  return value.is_null() || value == false || value == "" ||
         (value.is_structured() && value.empty());
}

/// Initial values that leave the base as it is; the others change it before training.
bool LeavesBase(const nlohmann::json& initialization) {
  return initialization.is_null() || initialization.is_boolean() || initialization == "gaussian" ||
         initialization == "orthogonal";
}

LoraTargets ReadTargets(const JsonNode& field) {
  const nlohmann::json& value = field.value();
  if (value.is_string() && !value.get<std::string>().empty()) return {{}, value.get<std::string>()};
  LoraTargets targets;
  bool valid = value.is_array() && !value.empty();
  for (const nlohmann::json& name : value) {
    valid = valid && name.is_string() && !name.get<std::string>().empty();
    if (valid) targets.names.push_back(name.get<std::string>());
  }
  if (!valid) field.FailExpected("a pattern or a list of names");
  return targets;
}

std::string TensorName(const std::string& module, char letter) {
  return fmt::format("{}{}.lora_{}.weight", kPrefix, module, letter);
}

}  // namespace

fs::path PeftConfigPath(const fs::path& folder) {
  return folder / "adapter_config.json";
}

fs::path PeftWeightsPath(const fs::path& folder) {
  return folder / "adapter_model.safetensors";
}

PeftConfig ReadPeftConfig(const fs::path& folder) {
  const std::string path = PeftConfigPath(folder).string();
  return ParsePeftConfig(ReadFile(path), path);
}

PeftConfig ParsePeftConfig(std::string_view text, const std::string& where) {
  const nlohmann::json json = ParseJson(text, where);
  const ConfigReader reader(json, where);
  if (reader.String("peft_type", "") != "LORA") reader.Field("peft_type").FailExpected("\"LORA\"");
  PeftConfig config;
  LoraOptions& options = config.options;
  options.rank = reader.Integer({"r"});
  options.alpha = reader.Real({"lora_alpha"}, 8.0);
  options.dropout = reader.Real({"lora_dropout"}, 0.0);
  options.rank_stabilized = reader.Boolean("use_rslora", false);
  config.base = reader.String("base_model_name_or_path", "");
  if (options.rank <= 0) reader.Field("r").FailExpected("a positive rank");
  if (!std::isfinite(options.alpha)) reader.Field("lora_alpha").FailExpected("a finite number");
  if (!(options.dropout >= 0.0 && options.dropout < 1.0))
    reader.Field("lora_dropout").FailExpected("0 <= p < 1");
  if (reader.String("bias", "none") != "none") reader.ThrowUnsupported("bias", "none");
  if (const auto initial = json.find("init_lora_weights");
      initial != json.end() && !LeavesBase(*initial)) {
    reader.ThrowUnsupported("init_lora_weights",
                            "what leaves the base's weights as they are (true, false, gaussian)");
  }
  for (const auto& [name, value] : json.items()) {
    const bool known =
        std::find(std::begin(kKnownFields), std::end(kKnownFields), name) != std::end(kKnownFields);
    if (!known && !MeansNothing(value)) reader.ThrowUnsupported(name, "null, false or nothing");
  }
  options.targets = ReadTargets(reader.Field("target_modules"));
  return config;
}

std::string DumpPeftConfig(const PeftConfig& config, bool transposed) {
  const LoraOptions& options = config.options;
  nlohmann::ordered_json json;
  json["peft_type"] = "LORA";
  json["task_type"] = "CAUSAL_LM";
  json["base_model_name_or_path"] = nullptr;
  if (!config.base.empty()) json["base_model_name_or_path"] = config.base;
  json["inference_mode"] = true;
  json["r"] = options.rank;
  json["lora_alpha"] = options.alpha;
  // PEFT has a whole number there.
  if (options.alpha == std::floor(options.alpha) && std::abs(options.alpha) < 1e15) {
    json["lora_alpha"] = static_cast<std::int64_t>(options.alpha);
  }
  json["lora_dropout"] = options.dropout;
  json["use_rslora"] = options.rank_stabilized;
  json["use_dora"] = false;
  json["bias"] = "none";
  json["fan_in_fan_out"] = transposed;
  json["init_lora_weights"] = true;
  json["modules_to_save"] = nullptr;
  json["target_modules"] = options.targets.names;
  if (!options.targets.pattern.empty()) json["target_modules"] = options.targets.pattern;
  return json.dump(2) + "\n";
}

std::vector<PeftWeights> FindPeftWeights(const checkpoint::SafetensorsFile& file,
                                         const std::vector<LoraSite>& sites, std::int64_t rank) {
  auto checklist = TensorChecklist::Of(file);
  const auto find = [&](const LoraSite& site, char letter, const Dims& expected) -> Tensor {
    std::string name = TensorName(site.module, letter);
    if (const std::string other = TensorName(site.module_short, letter);
        !checklist.Contains(name) && checklist.Contains(other)) {
      name = other;
    }
    return checklist.ExpectFloating(name, expected) ? file.Load(name) : Tensor();
  };
  std::vector<PeftWeights> result;
  for (const LoraSite& site : sites) {
    Tensor a = find(site, 'A', {rank, site.linear->weight().size(1)});
    result.push_back({std::move(a), find(site, 'B', {site.features, rank})});
  }
  checklist.ThrowIfWrong("the model and its adapter_config.json");
  return result;
}

void WritePeftWeights(const fs::path& folder, const std::vector<LoraSite>& sites) {
  NamedTensors tensors;
  for (const LoraSite& site : sites) {
    for (const nn::LoraAdapters::Adapter& adapter : site.linear->lora()->adapters()) {
      if (adapter.row != site.row) continue;
      tensors.emplace_back(TensorName(site.module, 'A'), adapter.a.Detach());
      tensors.emplace_back(TensorName(site.module, 'B'), adapter.b.Detach());
    }
  }
  checkpoint::WriteSafetensors(PeftWeightsPath(folder), tensors);
}

}  // namespace infini_train::models
