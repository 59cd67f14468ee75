#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/nn/transformer.h"

/// Model families on the one transformer: how each is configured, named and stored.
namespace infini_train::models {

/// What defines a model besides its weights.
struct ModelConfig {
  /// Family as in config.json's model_type: "gpt2", "llama", "qwen3", "mixtral".
  std::string family;
  nn::TransformerConfig transformer;
  /// Beginning-of-sequence token; -1 for none.
  std::int64_t bos_token_id = -1;
  /// Any of these ends a generated sequence.
  std::vector<std::int64_t> eos_token_ids;

  bool operator==(const ModelConfig&) const = default;
};

/// Fields in which two configurations differ, as "hidden_size: 768 and 1024". Dropout, the range of
/// initial weights and the tokens around texts are not compared.
INFINI_TRAIN_API std::vector<std::string> Differences(const ModelConfig& a, const ModelConfig& b);

struct Model {
  ModelConfig config;
  std::shared_ptr<nn::Transformer> module;
};

struct Preset {
  std::string name;
  std::string alias;  ///< a second name, or empty
  std::string description;
  ModelConfig config;
};

/// Models that can be trained from scratch by name: of each family the published sizes, a "-nano"
/// that a laptop trains in minutes; the one that a program trains by default also has its name.
INFINI_TRAIN_API const std::vector<Preset>& Presets();
/// Null when there is none of that name.
INFINI_TRAIN_API const Preset* FindPreset(std::string_view name);

/// A new model with parameters drawn from `seed`. Throws Error if it is ill-made or exceeds memory.
INFINI_TRAIN_API Model CreateModel(const ModelConfig& config, std::uint64_t seed,
                                   nn::TensorOptions options = {});

/// Opens a Hugging Face folder (config.json, model.safetensors or its sharded index,
/// generation_config.json if any) or an llm.c checkpoint file (.bin). Weights are mapped and
/// converted straight into the parameters. Throws Error naming the file and, where they are
/// concerned, every missing, unexpected or misshapen tensor; no half-loaded model is returned.
INFINI_TRAIN_API Model LoadModel(const std::filesystem::path& path, nn::TensorOptions options = {});

/// Reads the configuration of such a folder or file alone.
INFINI_TRAIN_API ModelConfig LoadModelConfig(const std::filesystem::path& path);

struct SaveModelOptions {
  /// Type on disk; the parameters' own by default.
  std::optional<DataType> dtype;
  /// Weights beyond this are split into several files with an index.
  std::int64_t max_shard_bytes = std::int64_t{5} << 30;
};

/// Writes config.json, generation_config.json and the weights with Hugging Face's names and
/// layouts, so that Transformers opens the folder. Each file is replaced atomically; the folder is
/// created. Throws Error for a model with adapters that are not merged (lora.h).
INFINI_TRAIN_API void SaveModel(const Model& model, const std::filesystem::path& folder,
                                const SaveModelOptions& options = {});

/// Writes an llm.c checkpoint: version 3 (float32) or 5 (bfloat16), for Qwen3 version 4 and for
/// Mixtral version 2 (float32). Throws Error that names what the format cannot hold.
INFINI_TRAIN_API void SaveLlmcCheckpoint(const Model& model, const std::filesystem::path& file,
                                         DataType dtype = DataType::kFloat32);

}  // namespace infini_train::models
