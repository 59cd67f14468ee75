#include "infini_train/models/families/decoder_family.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "infini_train/core/error.h"

namespace infini_train::models {
namespace {

/// Older files spread rotary positions over rope_theta and rope_scaling, newer ones keep them in
/// one object rope_parameters. Like Transformers, the object's values go first.
void ParseRotary(const ConfigReader& reader, double default_theta, nn::TransformerConfig& t) {
  const auto require_whole = [](const ConfigReader& source) {
    if (source.Real({"partial_rotary_factor"}, 1.0) != 1.0)
      source.ThrowUnsupported("partial_rotary_factor", "1");
  };
  t.rope_theta = reader.Real({"rope_theta"}, default_theta);
  require_whole(reader);
  std::optional<ConfigReader> rope = reader.Object("rope_scaling");
  if (!rope || rope->empty()) rope = reader.Object("rope_parameters");
  if (!rope) return;
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    if (rope->Mentions(layer_type)) rope->ThrowUnsupported(layer_type, "one set for all layers");
  }
  t.rope_theta = rope->Real({"rope_theta"}, t.rope_theta);
  require_whole(*rope);
  const char* key = rope->Mentions("rope_type") ? "rope_type" : "type";
  const std::string type = rope->String(key, "default");
  if (type == "default") return;
  if (type != "llama3") rope->ThrowUnsupported(key, "default or llama3");
  nn::RopeScaling& scaling = t.rope_scaling.emplace();
  scaling.factor = rope->Real({"factor"});
  scaling.low_freq_factor = rope->Real({"low_freq_factor"});
  scaling.high_freq_factor = rope->Real({"high_freq_factor"});
  scaling.original_max_position_embeddings = rope->Integer({"original_max_position_embeddings"});
}

void DumpRotary(const nn::TransformerConfig& t, nlohmann::ordered_json& json) {
  // The older spelling, which every version of Transformers reads.
  json["rope_theta"] = t.rope_theta;
  json["rope_scaling"] = nullptr;
  if (!t.rope_scaling) return;
  const nn::RopeScaling& scaling = *t.rope_scaling;
  json["rope_scaling"] = {
      {"rope_type", "llama3"},
      {"factor", scaling.factor},
      {"low_freq_factor", scaling.low_freq_factor},
      {"high_freq_factor", scaling.high_freq_factor},
      {"original_max_position_embeddings", scaling.original_max_position_embeddings}};
}

}  // namespace

nn::TransformerConfig BaseDecoderConfig() {
  nn::TransformerConfig config;
  config.norm = nn::NormType::kRmsNorm;
  config.activation = nn::Activation::kSwiGlu;
  config.position_embedding = nn::PositionEmbedding::kRotary;
  config.attention_bias = config.attention_output_bias = config.mlp_bias = false;
  config.tie_word_embeddings = false;
  return config;
}

ModelConfig DecoderFamily::ParseConfig(const nlohmann::json& json, const std::string& where) const {
  const ConfigReader reader(json, where);
  const DecoderDefaults fallback = defaults();
  ModelConfig config;
  config.family = name();
  nn::TransformerConfig& t = config.transformer;
  t = BaseDecoderConfig();
  t.vocab_size = reader.Integer({"vocab_size"});
  t.max_position_embeddings = reader.Integer({"max_position_embeddings"});
  t.hidden_size = reader.Integer({"hidden_size"});
  t.intermediate_size = reader.Integer({"intermediate_size"});
  t.num_hidden_layers = reader.Integer({"num_hidden_layers"});
  t.num_attention_heads = reader.Integer({"num_attention_heads"});
  const bool grouped = fallback.num_key_value_heads > 0 && !reader.Mentions("num_key_value_heads");
  t.num_key_value_heads = reader.Integer(
      {"num_key_value_heads"}, grouped ? fallback.num_key_value_heads : t.num_attention_heads);
  t.head_dim = reader.Integer({"head_dim"}, fallback.head_dim);
  if (fallback.head_dim == 0 && !reader.Has("head_dim")) {
    if (t.num_attention_heads <= 0 || t.hidden_size % t.num_attention_heads != 0) {
      throw Error(fmt::format(
          "{}: num_attention_heads: expected a divisor of hidden_size {} (there is no head_dim), "
          "found {}",
          where, t.hidden_size, t.num_attention_heads));
    }
    t.head_dim = t.hidden_size / t.num_attention_heads;
  }
  t.norm_eps = reader.Real({"rms_norm_eps"}, fallback.rms_norm_eps);
  if (const std::string act = reader.String("hidden_act", "silu"); act != "silu" && act != "swish")
    reader.ThrowUnsupported("hidden_act", "silu");
  ParseRotary(reader, fallback.rope_theta, t);
  t.tie_word_embeddings = reader.Boolean("tie_word_embeddings", false);
  t.attention_dropout = reader.Real({"attention_dropout"}, 0.0);
  t.initializer_range = reader.Real({"initializer_range"}, 0.02);
  ReadCommonFields(reader, config);
  ParseOwnFields(reader, config);
  return config;
}

nlohmann::ordered_json DecoderFamily::DumpConfig(const ModelConfig& config) const {
  const nn::TransformerConfig& t = config.transformer;
  nlohmann::ordered_json json;
  json["architectures"] = {architecture()};
  json["model_type"] = name();
  json["vocab_size"] = t.vocab_size;
  json["max_position_embeddings"] = t.max_position_embeddings;
  json["hidden_size"] = t.hidden_size;
  json["intermediate_size"] = t.intermediate_size;
  json["num_hidden_layers"] = t.num_hidden_layers;
  json["num_attention_heads"] = t.num_attention_heads;
  json["num_key_value_heads"] = t.num_key_value_heads;
  json["head_dim"] = t.head_dim;
  json["hidden_act"] = "silu";
  json["rms_norm_eps"] = t.norm_eps;
  DumpRotary(t, json);
  json["tie_word_embeddings"] = t.tie_word_embeddings;
  json["attention_dropout"] = t.attention_dropout;
  json["initializer_range"] = t.initializer_range;
  DumpOwnFields(config, json);
  json["use_cache"] = true;
  return json;
}

std::vector<WeightMapping> DecoderFamily::WeightMap(const ModelConfig& config) const {
  const nn::TransformerConfig& t = config.transformer;
  const std::int64_t query_rows = t.num_attention_heads * t.head_dim;
  const std::int64_t key_rows = t.num_key_value_heads * t.head_dim;
  std::vector<WeightMapping> map;
  const auto add = [&](const std::string& ours, const std::string& theirs) {
    map.push_back({ours, {{theirs}}});
  };
  add("wte.weight", "embed_tokens.weight");
  for (std::int64_t i = 0; i < t.num_hidden_layers; ++i) {
    const std::string ours = fmt::format("h.{}", i);
    const std::string theirs = fmt::format("layers.{}", i);
    const std::string attention = theirs + ".self_attn.";
    const auto add_attention = [&](const std::string& kind) {
      map.push_back({ours + ".attn.c_attn" + kind,
                     {{attention + "q_proj" + kind, query_rows},
                      {attention + "k_proj" + kind, key_rows},
                      {attention + "v_proj" + kind, key_rows}}});
    };
    add(ours + ".ln_1.weight", theirs + ".input_layernorm.weight");
    add_attention(".weight");
    if (t.attention_bias) add_attention(".bias");
    add(ours + ".attn.c_proj.weight", attention + "o_proj.weight");
    if (t.attention_output_bias) add(ours + ".attn.c_proj.bias", attention + "o_proj.bias");
    if (t.query_key_norm) {
      add(ours + ".attn.q_norm.weight", attention + "q_norm.weight");
      add(ours + ".attn.k_norm.weight", attention + "k_norm.weight");
    }
    add(ours + ".ln_2.weight", theirs + ".post_attention_layernorm.weight");
    AddMlpWeights(config, ours + ".mlp", theirs, map);
  }
  add("ln_f.weight", "norm.weight");
  if (!t.tie_word_embeddings) add("lm_head.weight", "lm_head.weight");
  return map;
}

void DecoderFamily::AddMlpWeights(const ModelConfig& config, const std::string& ours,
                                  const std::string& theirs,
                                  std::vector<WeightMapping>& map) const {
  const std::int64_t width = config.transformer.intermediate_size;
  const std::string mlp = theirs + ".mlp.";
  const auto add = [&](const std::string& kind) {
    map.push_back({ours + ".c_fc" + kind,
                   {{mlp + "gate_proj" + kind, width}, {mlp + "up_proj" + kind, width}}});
    map.push_back({ours + ".c_proj" + kind, {{mlp + "down_proj" + kind}}});
  };
  add(".weight");
  if (config.transformer.mlp_bias) add(".bias");
}

bool DecoderFamily::IsIgnorable(const ModelConfig& config, std::string_view name) const {
  return name.ends_with("rotary_emb.inv_freq") ||
         (config.transformer.tie_word_embeddings && name == "lm_head.weight");
}

}  // namespace infini_train::models
