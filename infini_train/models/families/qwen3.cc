#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "infini_train/core/error.h"
#include "infini_train/models/families/decoder_family.h"
#include "infini_train/models/families/decoder_llmc.h"

namespace infini_train::models {
namespace {

constexpr std::int32_t kMagic = 20240804;
/// Version 3 has Llama's order and an MLP of three times the hidden size, version 4 Hugging Face's
/// order and says what size the MLP has. Both are float32.
constexpr std::int32_t kInterleavedVersion = 3;
constexpr std::int32_t kHalfSplitVersion = 4;

checkpoint::LlmcReader OpenLlmc(const std::filesystem::path& path) {
  return {path,
          kMagic,
          {{kInterleavedVersion, DataType::kFloat32}, {kHalfSplitVersion, DataType::kFloat32}}};
}

DecoderLlmcLayout LayoutOf(std::int32_t version) {
  const bool half_split = version == kHalfSplitVersion;
  return {.interleaved = !half_split, .gate_first = half_split};
}

/// Llama with norms on the heads of queries and keys, and a head size of its own.
class Qwen3 final : public DecoderFamily {
 public:
  std::string_view name() const override { return "qwen3"; }
  std::int32_t llmc_magic() const override { return kMagic; }

  ModelConfig ReadLlmcConfig(const std::filesystem::path& path) const override {
    const checkpoint::LlmcReader reader = OpenLlmc(path);
    ModelConfig config;
    config.family = name();
    nn::TransformerConfig& t = config.transformer;
    t = ReadDecoderLlmcHeader(reader);
    t.query_key_norm = true;
    t.intermediate_size =
        reader.version() == kHalfSplitVersion ? reader.header(8) : 3 * t.hidden_size;
    if (reader.header(12) != 0) {
      throw Error(fmt::format("{}: use_scaled_rope: expected 0, found {}: not supported",
                              path.string(), reader.header(12)));
    }
    FinishDecoderLlmcConfig(reader, t);
    if (t.vocab_size > 151645) {
      config.bos_token_id = 151643;
      config.eos_token_ids = {151645, 151643};
    }
    return config;
  }

  void ReadLlmcWeights(const Model& model, const std::filesystem::path& path) const override {
    checkpoint::LlmcReader reader = OpenLlmc(path);
    ReadDecoderLlmcWeights(model, reader, LayoutOf(reader.version()));
  }

  void WriteLlmc(const Model& model, const std::filesystem::path& path,
                 DataType dtype) const override {
    const nn::TransformerConfig& t = model.config.transformer;
    nn::TransformerConfig expected = BaseDecoderConfig();
    expected.query_key_norm = true;
    CheckDecoderLlmcHolds(model.config, expected);
    checkpoint::LlmcWriter writer(
        path, kMagic, dtype,
        DecoderLlmcHeader(t, static_cast<std::int32_t>(t.intermediate_size), 1, 0),
        {{kHalfSplitVersion, DataType::kFloat32}});
    WriteDecoderLlmcWeights(model, writer, LayoutOf(kHalfSplitVersion));
    writer.Commit();
  }

 protected:
  std::string_view architecture() const override { return "Qwen3ForCausalLM"; }
  DecoderDefaults defaults() const override { return {.head_dim = 128, .num_key_value_heads = 32}; }

  void ParseOwnFields(const ConfigReader& reader, ModelConfig& config) const override {
    nn::TransformerConfig& t = config.transformer;
    t.query_key_norm = true;
    t.attention_bias = t.attention_output_bias = reader.Boolean("attention_bias", false);
    ParseSlidingWindow(reader, t);
  }

  void DumpOwnFields(const ModelConfig& config, nlohmann::ordered_json& json) const override {
    const nn::TransformerConfig& t = config.transformer;
    json["attention_bias"] = t.attention_bias;
    json["use_sliding_window"] = t.sliding_window > 0;
    json["sliding_window"] = nullptr;
    json["max_window_layers"] = t.num_hidden_layers;
    if (t.sliding_window > 0) {
      json["sliding_window"] = t.sliding_window;
      json["max_window_layers"] = t.max_window_layers;
    }
  }

 private:
  /// The first layers attend to all positions, the others to a window.
  static void ParseSlidingWindow(const ConfigReader& reader, nn::TransformerConfig& t) {
    const bool unlimited = reader.Mentions("sliding_window") && !reader.Has("sliding_window");
    const bool windows = reader.Boolean("use_sliding_window", false) && !unlimited;
    const std::int64_t window = windows ? reader.Integer({"sliding_window"}, 4096) : 0;
    std::int64_t full_layers = reader.Integer({"max_window_layers"}, 28);
    if (const std::vector<std::string> types = reader.Strings("layer_types"); !types.empty()) {
      const auto is_full = [](const std::string& type) { return type == "full_attention"; };
      const auto is_window = [](const std::string& type) { return type == "sliding_attention"; };
      const auto first_window = std::find_if_not(types.begin(), types.end(), is_full);
      full_layers = first_window - types.begin();
      const bool known =
          windows ? std::all_of(first_window, types.end(), is_window) : first_window == types.end();
      if (!known || static_cast<std::int64_t>(types.size()) != t.num_hidden_layers) {
        reader.ThrowUnsupported("layer_types",
                                fmt::format("{} layers of full_attention{}", t.num_hidden_layers,
                                            windows ? ", then of sliding_attention" : ""));
      }
    }
    if (window == 0 || full_layers >= t.num_hidden_layers) return;
    t.sliding_window = window;
    t.max_window_layers = full_layers;
  }
};

}  // namespace

const ModelFamily& Qwen3Family() {
  static const Qwen3 family;
  return family;
}

}  // namespace infini_train::models
