#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/models/model.h"

namespace infini_train::models {

/// One tensor of a file that holds rows of a parameter.
struct WeightPart {
  /// Name in the file, without an optional prefix (see ModelFamily::optional_prefix).
  std::string name;
  /// Rows of the parameter that it holds; -1 for all. A parameter of more than two dimensions
  /// counts as the matrix of its last one's rows.
  std::int64_t rows = -1;
  /// Whether the file holds the transpose.
  bool transposed = false;
};

/// Which tensors of a file make up a parameter, rows from top to bottom.
struct WeightMapping {
  std::string parameter;
  std::vector<WeightPart> parts;
  /// The parameter as one tensor, which some files hold instead of the parts; empty: none do.
  /// Saving writes the parts.
  std::string whole = {};
};

class ConfigReader;

/// What a family adds to the one transformer: its configuration file and its weight names. The
/// implementations are one file each.
class ModelFamily {
 public:
  virtual ~ModelFamily() = default;

  /// config.json's model_type.
  virtual std::string_view name() const = 0;

  /// Reads config.json (`where` names it in errors). Throws Error for a field that is missing, of
  /// the wrong type, or that changes the maths in a way that is not supported; ignores others.
  virtual ModelConfig ParseConfig(const nlohmann::json& json, const std::string& where) const = 0;
  /// The config.json that Transformers opens.
  virtual nlohmann::ordered_json DumpConfig(const ModelConfig& config) const = 0;

  virtual std::vector<WeightMapping> WeightMap(const ModelConfig& config) const = 0;
  /// Names in files may or may not start with this; saving adds it.
  virtual std::string_view optional_prefix() const = 0;
  /// Whether a tensor of a file is no weight (a mask buffer) or repeats one.
  virtual bool IsIgnorable(const ModelConfig& config, std::string_view name) const = 0;

  /// The number that starts the family's llm.c files; 0 for none.
  virtual std::int32_t llmc_magic() const { return 0; }
  virtual ModelConfig ReadLlmcConfig(const std::filesystem::path& path) const;
  virtual void ReadLlmcWeights(const Model& model, const std::filesystem::path& path) const;
  virtual void WriteLlmc(const Model& model, const std::filesystem::path& path,
                         DataType dtype) const;
};

/// Throws Error naming the known families.
const ModelFamily& GetFamily(std::string_view name);
const std::vector<const ModelFamily*>& Families();

/// The fields that mean the same in all families: the token ids that begin and end a text. Throws
/// Error for quantised weights.
void ReadCommonFields(const ConfigReader& reader, ModelConfig& config);

/// Throws Error, beginning with `where`, unless `config` makes sense.
void ValidateConfig(const nn::TransformerConfig& config, const std::string& where);

/// Throws Error naming where the model differs from `held`, which an llm.c file would hold of it.
void CheckLlmcHolds(const ModelConfig& held, const ModelConfig& config);

const ModelFamily& Gpt2Family();
const ModelFamily& LlamaFamily();
const ModelFamily& MixtralFamily();
const ModelFamily& Qwen3Family();

}  // namespace infini_train::models
