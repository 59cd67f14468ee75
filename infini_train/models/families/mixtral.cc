#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "infini_train/models/families/decoder_family.h"
#include "infini_train/models/families/decoder_llmc.h"
#include "infini_train/models/families/weights.h"

namespace infini_train::models {
namespace {

constexpr std::int32_t kMagic = 20260513;
constexpr std::int32_t kVersion = 2;
const std::vector<checkpoint::LlmcVersion> kLlmcVersions = {{kVersion, DataType::kFloat32}};

/// Views of the parameters in the order of an llm.c file: layer by layer, queries, keys and values
/// apart in Hugging Face's order of rows, an expert's gate, up and down together, the head always.
std::vector<Tensor> FileOrder(const Model& model) {
  const NoGrad no_grad;
  const nn::TransformerConfig& t = model.config.transformer;
  const std::unordered_map<std::string, Tensor> parameters = ParametersByName(model);
  const std::int64_t queries = t.num_attention_heads * t.head_dim;
  const std::int64_t keys = t.num_key_value_heads * t.head_dim;
  std::vector<Tensor> order = {parameters.at("wte.weight")};
  for (std::int64_t i = 0; i < t.num_hidden_layers; ++i) {
    const auto parameter = [&](const char* name) {
      return parameters.at(fmt::format("h.{}.{}", i, name));
    };
    order.push_back(parameter("ln_1.weight"));
    const Tensor attention = parameter("attn.c_attn.weight");
    for (const Tensor& part : Split(attention, {queries, keys, keys}, 0))
      order.push_back(part);
    order.push_back(parameter("attn.c_proj.weight"));
    order.push_back(parameter("ln_2.weight"));
    order.push_back(parameter("mlp.router.weight"));
    for (std::int64_t e = 0; e < t.num_local_experts; ++e) {
      const Tensor gate_up = Select(parameter("mlp.experts.c_fc.weight"), 0, e);
      order.push_back(Slice(gate_up, 0, 0, t.intermediate_size));
      order.push_back(Slice(gate_up, 0, t.intermediate_size));
      order.push_back(Select(parameter("mlp.experts.c_proj.weight"), 0, e));
    }
  }
  order.push_back(parameters.at("ln_f.weight"));
  order.push_back(parameters.at(t.tie_word_embeddings ? "wte.weight" : "lm_head.weight"));
  return order;
}

/// Llama with a mixture of experts for an MLP.
class Mixtral final : public DecoderFamily {
 public:
  std::string_view name() const override { return "mixtral"; }
  std::int32_t llmc_magic() const override { return kMagic; }

  ModelConfig ReadLlmcConfig(const std::filesystem::path& path) const override {
    const checkpoint::LlmcReader reader(path, kMagic, kLlmcVersions);
    ModelConfig config;
    config.family = name();
    nn::TransformerConfig& t = config.transformer;
    t = ReadDecoderLlmcHeader(reader);
    // Not where the other families have them.
    t.norm_eps = reader.HeaderReal(12).value_or(reader.header(12));
    t.rope_theta = reader.HeaderReal(13).value_or(reader.header(13));
    t.num_local_experts = reader.header(8);
    t.num_experts_per_tok = reader.header(15);
    t.intermediate_size = reader.header(16);
    t.router_aux_loss_coef = kRouterAuxLossCoef;
    const auto refuse = [&](const char* field, const char* expected, std::int32_t found) {
      throw Error(
          fmt::format("{}: {}: expected {}, found {}", path.string(), field, expected, found));
    };
    if (reader.header(14) != 0) refuse("use_scaled_rope", "0", reader.header(14));
    if (t.num_local_experts <= 0) refuse("num_experts", "1 or more", reader.header(8));
    FinishDecoderLlmcConfig(reader, t);
    if (t.vocab_size == 32000) {
      config.bos_token_id = 1;
      config.eos_token_ids = {2};
    } else if (t.vocab_size == 128256) {
      config.bos_token_id = 128000;
      config.eos_token_ids = {128001};
    }
    return config;
  }

  void ReadLlmcWeights(const Model& model, const std::filesystem::path& path) const override {
    checkpoint::LlmcReader reader(path, kMagic, kLlmcVersions);
    ReadTensors(reader, FileOrder(model));
  }

  void WriteLlmc(const Model& model, const std::filesystem::path& path,
                 DataType dtype) const override {
    const nn::TransformerConfig& t = model.config.transformer;
    nn::TransformerConfig expected = BaseDecoderConfig();
    expected.num_local_experts = t.num_local_experts;
    expected.num_experts_per_tok = t.num_experts_per_tok;
    expected.output_router_logits = t.output_router_logits;
    expected.router_aux_loss_coef = t.router_aux_loss_coef;
    expected.router_jitter_noise = t.router_jitter_noise;
    CheckDecoderLlmcHolds(model.config, expected);
    const auto integer = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
    const auto real = [](double value) {
      return std::bit_cast<std::int32_t>(static_cast<float>(value));
    };
    const double expansion =
        static_cast<double>(t.intermediate_size) / static_cast<double>(t.hidden_size);
    checkpoint::LlmcWriter writer(
        path, kMagic, dtype,
        {integer(t.max_position_embeddings), integer(t.vocab_size), integer(t.num_hidden_layers),
         integer(t.num_attention_heads), integer(t.num_key_value_heads), integer(t.hidden_size),
         integer(t.num_local_experts), real(expansion), 0, 0, real(t.norm_eps), real(t.rope_theta),
         0, integer(t.num_experts_per_tok), integer(t.intermediate_size)},
        kLlmcVersions);
    AppendTensors(writer, FileOrder(model));
    writer.Commit();
  }

 protected:
  std::string_view architecture() const override { return "MixtralForCausalLM"; }
  DecoderDefaults defaults() const override {
    return {.num_key_value_heads = 8, .rms_norm_eps = 1e-5, .rope_theta = 1e6};
  }

  void ParseOwnFields(const ConfigReader& reader, ModelConfig& config) const override {
    nn::TransformerConfig& t = config.transformer;
    t.num_local_experts = reader.Integer({"num_local_experts"}, 8);
    if (t.num_local_experts <= 0) reader.ThrowUnsupported("num_local_experts", "1 or more");
    t.num_experts_per_tok = reader.Integer({"num_experts_per_tok"}, 2);
    t.output_router_logits = reader.Boolean("output_router_logits", false);
    t.router_aux_loss_coef = reader.Real({"router_aux_loss_coef"}, kRouterAuxLossCoef);
    t.router_jitter_noise = reader.Real({"router_jitter_noise"}, 0.0);
    t.sliding_window = reader.Integer({"sliding_window"}, 0);
    if (reader.Has("sliding_window") && t.sliding_window <= 0)
      reader.ThrowUnsupported("sliding_window", "null or 1 or more");
  }

  void DumpOwnFields(const ModelConfig& config, nlohmann::ordered_json& json) const override {
    const nn::TransformerConfig& t = config.transformer;
    json["num_local_experts"] = t.num_local_experts;
    json["num_experts_per_tok"] = t.num_experts_per_tok;
    json["output_router_logits"] = t.output_router_logits;
    json["router_aux_loss_coef"] = t.router_aux_loss_coef;
    json["router_jitter_noise"] = t.router_jitter_noise;
    json["sliding_window"] = nullptr;
    if (t.sliding_window > 0) json["sliding_window"] = t.sliding_window;
  }

  void AddMlpWeights(const ModelConfig& config, const std::string& ours, const std::string& theirs,
                     std::vector<WeightMapping>& map) const override {
    const nn::TransformerConfig& t = config.transformer;
    const std::string published = theirs + ".block_sparse_moe";
    WeightMapping gate_up{ours + ".experts.c_fc.weight", {}, theirs + ".mlp.experts.gate_up_proj"};
    WeightMapping down{ours + ".experts.c_proj.weight", {}, theirs + ".mlp.experts.down_proj"};
    for (std::int64_t e = 0; e < t.num_local_experts; ++e) {
      const std::string expert = fmt::format("{}.experts.{}", published, e);
      gate_up.parts.push_back({expert + ".w1.weight", t.intermediate_size});
      gate_up.parts.push_back({expert + ".w3.weight", t.intermediate_size});
      down.parts.push_back({expert + ".w2.weight", t.hidden_size});
    }
    map.push_back(
        {ours + ".router.weight", {{published + ".gate.weight"}}, theirs + ".mlp.gate.weight"});
    map.push_back(std::move(gate_up));
    map.push_back(std::move(down));
  }

 private:
  /// Transformers' default.
  static constexpr double kRouterAuxLossCoef = 0.001;
};

}  // namespace

const ModelFamily& MixtralFamily() {
  static const Mixtral family;
  return family;
}

}  // namespace infini_train::models
