#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/models/lora/lora_targets.h"

/// The two files of PEFT's LoRA: what adapters are like, and their values.
namespace infini_train::models {

std::filesystem::path PeftConfigPath(const std::filesystem::path& folder);
std::filesystem::path PeftWeightsPath(const std::filesystem::path& folder);

struct PeftConfig {
  LoraOptions options;
  std::string base;  ///< base_model_name_or_path; empty where it does not say

  bool operator==(const PeftConfig&) const = default;
};

/// Reads an adapter_config.json (`where` names it in errors). Throws Error naming the field that is
/// missing, of a wrong type, or whose value would change what is computed and is not supported.
PeftConfig ParsePeftConfig(std::string_view text, const std::string& where);
PeftConfig ReadPeftConfig(const std::filesystem::path& folder);

/// The text of an adapter_config.json. `transposed`: Hugging Face keeps the weights of the layers
/// as [in, out].
std::string DumpPeftConfig(const PeftConfig& config, bool transposed);

/// A and B of each site, in order.
struct PeftWeights {
  Tensor a;
  Tensor b;
};

/// Finds the adapters of `sites` in a file. Throws Error that lists every tensor that is missing,
/// unexpected, misshapen or of no floating type.
std::vector<PeftWeights> FindPeftWeights(const checkpoint::SafetensorsFile& file,
                                         const std::vector<LoraSite>& sites, std::int64_t rank);

void WritePeftWeights(const std::filesystem::path& folder, const std::vector<LoraSite>& sites);

}  // namespace infini_train::models
