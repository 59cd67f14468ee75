#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/checkpoint/llmc_checkpoint.h"
#include "infini_train/core/error.h"
#include "infini_train/models/families/config_reader.h"
#include "infini_train/models/families/model_family.h"
#include "infini_train/models/families/weights.h"

namespace infini_train::models {
namespace {

constexpr std::int32_t kMagic = 20240326;
constexpr std::int64_t kVocabularyPadding = 128;

/// Activation functions by Transformers' names.
struct ActivationName {
  const char* name;
  nn::Activation activation;
};
constexpr ActivationName kActivationNames[] = {{"gelu_new", nn::Activation::kGeluTanh},
                                               {"gelu_pytorch_tanh", nn::Activation::kGeluTanh},
                                               {"gelu", nn::Activation::kGelu},
                                               {"relu", nn::Activation::kRelu}};

/// The parameters of a block in llm.c's order.
constexpr const char* kBlockParameters[] = {
    "ln_1.weight",        "ln_1.bias",        "attn.c_attn.weight", "attn.c_attn.bias",
    "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight",        "ln_2.bias",
    "mlp.c_fc.weight",    "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};

/// Hugging Face stores these as [in, out] (Conv1D), also where the matrix is square.
bool IsStoredTransposed(std::string_view name) {
  return name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") ||
         name.ends_with("c_fc.weight");
}

std::int64_t PaddedVocabulary(std::int64_t vocab_size) {
  return (vocab_size + kVocabularyPadding - 1) / kVocabularyPadding * kVocabularyPadding;
}

/// What GPT-2's fixed parts are, before sizes are known.
nn::TransformerConfig BaseConfig() {
  nn::TransformerConfig config;
  config.norm = nn::NormType::kLayerNorm;
  config.activation = nn::Activation::kGeluTanh;
  config.position_embedding = nn::PositionEmbedding::kLearned;
  return config;
}

class Gpt2 final : public ModelFamily {
 public:
  std::string_view name() const override { return "gpt2"; }
  std::string_view optional_prefix() const override { return "transformer."; }
  std::int32_t llmc_magic() const override { return kMagic; }

  ModelConfig ParseConfig(const nlohmann::json& json, const std::string& where) const override {
    const ConfigReader reader(json, where);
    ModelConfig config;
    config.family = "gpt2";
    nn::TransformerConfig& t = config.transformer;
    t = BaseConfig();
    t.vocab_size = reader.Integer({"vocab_size"});
    t.max_position_embeddings = reader.Integer({"n_positions", "max_position_embeddings"});
    t.hidden_size = reader.Integer({"n_embd", "hidden_size"});
    t.num_hidden_layers = reader.Integer({"n_layer", "num_hidden_layers"});
    t.num_attention_heads = reader.Integer({"n_head", "num_attention_heads"});
    t.num_key_value_heads = t.num_attention_heads;
    if (t.num_attention_heads <= 0 || t.hidden_size % t.num_attention_heads != 0) {
      throw Error(fmt::format("{}: n_head: expected a divisor of n_embd {}, found {}", where,
                              t.hidden_size, t.num_attention_heads));
    }
    t.head_dim = t.hidden_size / t.num_attention_heads;
    t.intermediate_size = reader.Integer({"n_inner", "intermediate_size"}, 4 * t.hidden_size);
    t.norm_eps = reader.Real({"layer_norm_epsilon"}, 1e-5);
    const std::string activation = reader.String("activation_function", "gelu_new");
    bool known = false;
    for (const auto& [name, value] : kActivationNames) {
      if (activation == name) {
        t.activation = value;
        known = true;
      }
    }
    if (!known) {
      reader.ThrowUnsupported("activation_function", "gelu_new, gelu_pytorch_tanh, gelu or relu");
    }
    if (reader.Boolean("add_cross_attention", false)) {
      reader.ThrowUnsupported("add_cross_attention", "false");
    }
    // reorder_and_upcast_attn asks for float32 scores, which attention here always has.
    t.scale_attention = reader.Boolean("scale_attn_weights", true);
    t.scale_attention_by_inverse_layer_index =
        reader.Boolean("scale_attn_by_inverse_layer_idx", false);
    t.tie_word_embeddings = reader.Boolean("tie_word_embeddings", true);
    t.embedding_dropout = reader.Real({"embd_pdrop"}, 0.1);
    t.attention_dropout = reader.Real({"attn_pdrop"}, 0.1);
    t.residual_dropout = reader.Real({"resid_pdrop"}, 0.1);
    t.initializer_range = reader.Real({"initializer_range"}, 0.02);
    ReadCommonFields(reader, config);
    return config;
  }

  nlohmann::ordered_json DumpConfig(const ModelConfig& config) const override {
    const nn::TransformerConfig& t = config.transformer;
    nlohmann::ordered_json json;
    json["architectures"] = {"GPT2LMHeadModel"};
    json["model_type"] = "gpt2";
    json["vocab_size"] = t.vocab_size;
    json["n_positions"] = t.max_position_embeddings;
    json["n_ctx"] = t.max_position_embeddings;
    json["n_embd"] = t.hidden_size;
    json["n_layer"] = t.num_hidden_layers;
    json["n_head"] = t.num_attention_heads;
    json["n_inner"] = nullptr;
    if (t.intermediate_size != 4 * t.hidden_size) json["n_inner"] = t.intermediate_size;
    for (const auto& [name, value] : kActivationNames) {
      if (value == t.activation && !json.contains("activation_function")) {
        json["activation_function"] = name;
      }
    }
    json["layer_norm_epsilon"] = t.norm_eps;
    json["initializer_range"] = t.initializer_range;
    json["embd_pdrop"] = t.embedding_dropout;
    json["attn_pdrop"] = t.attention_dropout;
    json["resid_pdrop"] = t.residual_dropout;
    json["scale_attn_weights"] = t.scale_attention;
    json["scale_attn_by_inverse_layer_idx"] = t.scale_attention_by_inverse_layer_index;
    json["reorder_and_upcast_attn"] = false;
    json["tie_word_embeddings"] = t.tie_word_embeddings;
    json["use_cache"] = true;
    return json;
  }

  std::vector<WeightMapping> WeightMap(const ModelConfig& config) const override {
    std::vector<WeightMapping> map;
    const auto add = [&](const std::string& name) {
      map.push_back({name, {{name, -1, IsStoredTransposed(name)}}});
    };
    add("wte.weight");
    add("wpe.weight");
    for (std::int64_t i = 0; i < config.transformer.num_hidden_layers; ++i) {
      for (const char* parameter : kBlockParameters)
        add(fmt::format("h.{}.{}", i, parameter));
    }
    add("ln_f.weight");
    add("ln_f.bias");
    if (!config.transformer.tie_word_embeddings) add("lm_head.weight");
    return map;
  }

  bool IsIgnorable(const ModelConfig& config, std::string_view name) const override {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
           (config.transformer.tie_word_embeddings && name == "lm_head.weight");
  }

  ModelConfig ReadLlmcConfig(const std::filesystem::path& path) const override {
    const checkpoint::LlmcReader reader(path, kMagic);
    ModelConfig config;
    config.family = "gpt2";
    config.bos_token_id = 50256;
    config.eos_token_ids = {50256};
    nn::TransformerConfig& t = config.transformer;
    t = BaseConfig();
    t.max_position_embeddings = reader.header(2);
    t.vocab_size = reader.header(3);
    t.num_hidden_layers = reader.header(4);
    t.num_attention_heads = t.num_key_value_heads = reader.header(5);
    t.hidden_size = reader.header(6);
    const bool divides = t.num_attention_heads > 0 && t.hidden_size % t.num_attention_heads == 0;
    t.head_dim = divides ? t.hidden_size / t.num_attention_heads : 0;
    t.intermediate_size = 4 * t.hidden_size;
    if (t.vocab_size <= config.bos_token_id) {
      config.bos_token_id = -1;
      config.eos_token_ids.clear();
    }
    ValidateConfig(t, path.string());
    const std::int64_t padded = reader.header(7);
    if (padded < t.vocab_size || padded > PaddedVocabulary(t.vocab_size) + kVocabularyPadding) {
      throw Error(fmt::format("{}: expected a padded vocabulary of {} for {} tokens, found {}",
                              path.string(), PaddedVocabulary(t.vocab_size), t.vocab_size, padded));
    }
    reader.CheckPayload(t.NumParameters() + (padded - t.vocab_size) * t.hidden_size);
    return config;
  }

  void ReadLlmcWeights(const Model& model, const std::filesystem::path& path) const override {
    checkpoint::LlmcReader reader(path, kMagic);
    const std::unordered_map<std::string, Tensor> parameters = ParametersByName(model);
    const NoGrad no_grad;
    const std::int64_t padded = reader.header(7);
    VisitLlmcOrder(model.config, [&](const std::string& name) {
      const Tensor& parameter = parameters.at(name);
      Dims shape = parameter.shape();
      if (name == "wte.weight") shape[0] = padded;
      CopyWeight(parameter, Slice(reader.Next(shape), 0, 0, parameter.size(0)));
    });
  }

  void WriteLlmc(const Model& model, const std::filesystem::path& path,
                 DataType dtype) const override {
    const nn::TransformerConfig& t = model.config.transformer;
    nn::TransformerConfig plain = BaseConfig();
    plain.vocab_size = t.vocab_size;
    plain.max_position_embeddings = t.max_position_embeddings;
    plain.hidden_size = t.hidden_size;
    plain.num_hidden_layers = t.num_hidden_layers;
    plain.num_attention_heads = plain.num_key_value_heads = t.num_attention_heads;
    plain.head_dim = t.head_dim;
    plain.intermediate_size = 4 * t.hidden_size;
    CheckLlmcHolds({model.config.family, plain, -1, {}}, {model.config.family, t, -1, {}});
    const std::int64_t padded = PaddedVocabulary(t.vocab_size);
    const auto field = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
    checkpoint::LlmcWriter writer(
        path, kMagic, dtype,
        {field(t.max_position_embeddings), field(t.vocab_size), field(t.num_hidden_layers),
         field(t.num_attention_heads), field(t.hidden_size), field(padded)});
    const std::unordered_map<std::string, Tensor> parameters = ParametersByName(model);
    VisitLlmcOrder(model.config, [&](const std::string& name) {
      writer.Append(parameters.at(name));
      if (name == "wte.weight") {
        writer.Append(Zeros({padded - t.vocab_size, t.hidden_size}));
      }
    });
    writer.Commit();
  }

 private:
  /// All layers of one kind of parameter follow each other.
  template <typename Visitor>
  static void VisitLlmcOrder(const ModelConfig& config, Visitor visitor) {
    visitor("wte.weight");
    visitor("wpe.weight");
    for (const char* parameter : kBlockParameters) {
      for (std::int64_t i = 0; i < config.transformer.num_hidden_layers; ++i) {
        visitor(fmt::format("h.{}.{}", i, parameter));
      }
    }
    visitor("ln_f.weight");
    visitor("ln_f.bias");
  }
};

}  // namespace

const ModelFamily& Gpt2Family() {
  static const Gpt2 family;
  return family;
}

}  // namespace infini_train::models
