#include "infini_train/models/families/model_family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "infini_train/core/error.h"
#include "infini_train/models/families/config_reader.h"

namespace infini_train::models {

namespace fs = std::filesystem;

const std::vector<const ModelFamily*>& Families() {
  static const std::vector<const ModelFamily*> families = {&Gpt2Family(), &LlamaFamily(),
                                                           &Qwen3Family(), &MixtralFamily()};
  return families;
}

const ModelFamily& GetFamily(std::string_view name) {
  std::vector<std::string_view> known;
  for (const ModelFamily* family : Families()) {
    if (family->name() == name) return *family;
    known.push_back(family->name());
  }
  throw Error(
      fmt::format("'{}' is no model family; expected one of {}", name, fmt::join(known, ", ")));
}

ModelConfig ModelFamily::ReadLlmcConfig(const fs::path&) const {
  throw Error(fmt::format("{} has no llm.c format", name()));
}
void ModelFamily::ReadLlmcWeights(const Model&, const fs::path&) const {
  throw Error(fmt::format("{} has no llm.c format", name()));
}
void ModelFamily::WriteLlmc(const Model&, const fs::path&, DataType) const {
  throw Error(fmt::format("{} has no llm.c format", name()));
}

void ReadCommonFields(const ConfigReader& reader, ModelConfig& config) {
  const std::vector<std::int64_t> bos = reader.TokenIds("bos_token_id");
  config.bos_token_id = bos.empty() ? -1 : bos[0];
  config.eos_token_ids = reader.TokenIds("eos_token_id");
  if (reader.Object("quantization_config"))
    reader.ThrowUnsupported("quantization_config", "weights that are not quantised");
}

void ValidateConfig(const nn::TransformerConfig& config, const std::string& where) {
  try {
    config.Validate();
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", where, error.what()));
  }
}

void CheckLlmcHolds(const ModelConfig& held, const ModelConfig& config) {
  const std::vector<std::string> differences = Differences(held, config);
  if (differences.empty()) return;
  throw Error(fmt::format("llm.c's format cannot hold this model (expected and found): {}",
                          fmt::join(differences, "; ")));
}

}  // namespace infini_train::models
