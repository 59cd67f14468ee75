#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/models/families/config_reader.h"
#include "infini_train/models/families/model_family.h"

namespace infini_train::models {

/// What a family's configuration class in Transformers takes for fields that config.json leaves
/// out. Sizes must be there.
struct DecoderDefaults {
  std::int64_t head_dim = 0;             ///< 0 for hidden_size / num_attention_heads
  std::int64_t num_key_value_heads = 0;  ///< 0 for num_attention_heads
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
};

/// What Llama and its kin have in common: RMSNorm, rotary positions in half-split order, grouped
/// key and value heads, a gated MLP, and Hugging Face's names and fields for them. A family adds
/// its own fields, and its own MLP where that differs.
class DecoderFamily : public ModelFamily {
 public:
  ModelConfig ParseConfig(const nlohmann::json& json, const std::string& where) const final;
  nlohmann::ordered_json DumpConfig(const ModelConfig& config) const final;
  std::vector<WeightMapping> WeightMap(const ModelConfig& config) const final;
  std::string_view optional_prefix() const final { return "model."; }
  bool IsIgnorable(const ModelConfig& config, std::string_view name) const final;

 protected:
  virtual DecoderDefaults defaults() const { return {}; }
  /// config.json's "architectures".
  virtual std::string_view architecture() const = 0;
  /// Called with what all families share filled in, and no biases.
  virtual void ParseOwnFields(const ConfigReader& reader, ModelConfig& config) const = 0;
  virtual void DumpOwnFields(const ModelConfig& config, nlohmann::ordered_json& json) const = 0;
  /// Adds a layer's mappings: `ours` starts its parameters ("h.3.mlp"), `theirs` the tensors of a
  /// file ("layers.3"). Here those of a dense gated MLP.
  virtual void AddMlpWeights(const ModelConfig& config, const std::string& ours,
                             const std::string& theirs, std::vector<WeightMapping>& map) const;
};

/// What the families' config.json do not say, before sizes are known.
nn::TransformerConfig BaseDecoderConfig();

}  // namespace infini_train::models
