#include <fmt/format.h>

#include "infini_train/models/families/decoder_family.h"
#include "infini_train/models/model.h"

namespace infini_train::models {
namespace {

/// The byte tokenizer's tokens; its last one ends a text.
constexpr std::int64_t kByteTokens = 257;
/// GPT-2's, likewise.
constexpr std::int64_t kGpt2Tokens = 50257;

struct Gpt2Size {
  const char* name;
  const char* alias;
  std::int64_t num_hidden_layers;
  std::int64_t num_attention_heads;
  std::int64_t hidden_size;
};
constexpr Gpt2Size kGpt2Sizes[] = {{"gpt2", "d12", 12, 12, 768},
                                   {"gpt2-medium", "d24", 24, 16, 1024},
                                   {"gpt2-large", "d36", 36, 20, 1280},
                                   {"gpt2-xl", "d48", 48, 25, 1600}};

/// The shape of a model of Llama's kin.
struct DecoderSize {
  const char* name;
  const char* alias;  ///< or empty
  std::int64_t hidden_size;
  std::int64_t intermediate_size;
  std::int64_t num_hidden_layers;
  std::int64_t num_attention_heads;
  std::int64_t num_key_value_heads;
  std::int64_t head_dim;
  bool tie_word_embeddings;
  std::int64_t vocab_size;
  std::int64_t max_position_embeddings;
  double rope_theta;
  double rope_factor;  ///< 0 for no scaling
};
constexpr std::int64_t kLlama3Tokens = 128256;
constexpr DecoderSize kLlama3Sizes[] = {
    {"llama3-nano", "", 256, 704, 4, 4, 2, 64, true, kByteTokens, 1024, 1e4, 0},
    {"llama3-125m", "", 768, 2432, 12, 12, 4, 64, true, kGpt2Tokens, 8192, 5e5, 0},
    {"llama3-8b", "", 4096, 14336, 32, 32, 8, 128, false, kLlama3Tokens, 8192, 5e5, 0},
    {"llama3-70b", "", 8192, 28672, 80, 64, 8, 128, false, kLlama3Tokens, 8192, 5e5, 0},
    {"llama3.1-8b", "", 4096, 14336, 32, 32, 8, 128, false, kLlama3Tokens, 131072, 5e5, 8},
    {"llama3.1-70b", "", 8192, 28672, 80, 64, 8, 128, false, kLlama3Tokens, 131072, 5e5, 8},
    {"llama3.1-405b", "", 16384, 53248, 126, 128, 8, 128, false, kLlama3Tokens, 131072, 5e5, 8},
    {"llama3.2-1b", "llama3", 2048, 8192, 16, 32, 8, 64, true, kLlama3Tokens, 131072, 5e5, 32},
    {"llama3.2-3b", "", 3072, 8192, 28, 24, 8, 128, true, kLlama3Tokens, 131072, 5e5, 32}};
constexpr std::int64_t kQwen3Tokens = 151936;
constexpr DecoderSize kQwen3Sizes[] = {
    {"qwen3-nano", "", 256, 640, 4, 6, 2, 64, true, kByteTokens, 1024, 1e4, 0},
    {"qwen3-0.6b", "qwen3", 1024, 3072, 28, 16, 8, 128, true, kQwen3Tokens, 40960, 1e6, 0},
    {"qwen3-1.7b", "", 2048, 6144, 28, 16, 8, 128, true, kQwen3Tokens, 40960, 1e6, 0},
    {"qwen3-4b", "", 2560, 9728, 36, 32, 8, 128, true, kQwen3Tokens, 40960, 1e6, 0},
    {"qwen3-8b", "", 4096, 12288, 36, 32, 8, 128, false, kQwen3Tokens, 40960, 1e6, 0},
    {"qwen3-14b", "", 5120, 17408, 40, 40, 8, 128, false, kQwen3Tokens, 40960, 1e6, 0},
    {"qwen3-32b", "", 5120, 25600, 64, 64, 8, 128, false, kQwen3Tokens, 40960, 1e6, 0}};

/// Eight experts, of which two see a token.
constexpr std::int64_t kMixtralTokens = 32000;
constexpr DecoderSize kMixtralSizes[] = {
    {"mixtral-nano", "", 256, 352, 4, 4, 2, 64, false, kByteTokens, 1024, 1e4, 0},
    {"mixtral-1.2b", "mixtral", 1024, 3584, 12, 16, 8, 64, false, kMixtralTokens, 32768, 1e6, 0},
    {"mixtral-8x7b", "", 4096, 14336, 32, 32, 8, 128, false, kMixtralTokens, 32768, 1e6, 0},
    {"mixtral-8x22b", "", 6144, 16384, 56, 48, 8, 128, false, kMixtralTokens, 65536, 1e6, 0}};

/// Completes a preset whose sizes are set.
Preset Describe(Preset preset, const char* title) {
  const nn::TransformerConfig& t = preset.config.transformer;
  const auto parameters = static_cast<double>(t.NumParameters());
  const bool large = parameters >= 1e9;
  preset.description =
      fmt::format("{}, {:.1f} {} parameters: {} layers, hidden size {}, {} positions, {} tokens",
                  title, parameters * (large ? 1e-9 : 1e-6), large ? "G" : "M", t.num_hidden_layers,
                  t.hidden_size, t.max_position_embeddings, t.vocab_size);
  return preset;
}

Preset MakeGpt2(const char* name, const char* alias, std::int64_t vocab_size,
                std::int64_t positions, std::int64_t layers, std::int64_t heads,
                std::int64_t hidden_size) {
  Preset preset;
  preset.name = name;
  preset.alias = alias;
  preset.config.family = "gpt2";
  preset.config.bos_token_id = vocab_size - 1;
  preset.config.eos_token_ids = {vocab_size - 1};
  nn::TransformerConfig& t = preset.config.transformer;
  t.vocab_size = vocab_size;
  t.max_position_embeddings = positions;
  t.num_hidden_layers = layers;
  t.num_attention_heads = t.num_key_value_heads = heads;
  t.hidden_size = hidden_size;
  t.head_dim = hidden_size / heads;
  t.intermediate_size = 4 * hidden_size;
  return Describe(std::move(preset), "GPT-2");
}

Preset MakeDecoder(const DecoderSize& size) {
  Preset preset;
  preset.name = size.name;
  preset.alias = size.alias;
  preset.config.bos_token_id = size.vocab_size - 1;
  preset.config.eos_token_ids = {size.vocab_size - 1};
  nn::TransformerConfig& t = preset.config.transformer;
  t = BaseDecoderConfig();
  t.vocab_size = size.vocab_size;
  t.max_position_embeddings = size.max_position_embeddings;
  t.hidden_size = size.hidden_size;
  t.intermediate_size = size.intermediate_size;
  t.num_hidden_layers = size.num_hidden_layers;
  t.num_attention_heads = size.num_attention_heads;
  t.num_key_value_heads = size.num_key_value_heads;
  t.head_dim = size.head_dim;
  t.tie_word_embeddings = size.tie_word_embeddings;
  t.rope_theta = size.rope_theta;
  if (size.rope_factor > 0) t.rope_scaling = nn::RopeScaling{.factor = size.rope_factor};
  return preset;
}

Preset MakeLlama3(const DecoderSize& size) {
  Preset preset = MakeDecoder(size);
  preset.config.family = "llama";
  preset.config.transformer.norm_eps = 1e-5;
  if (size.vocab_size == kLlama3Tokens) {
    preset.config.bos_token_id = 128000;
    preset.config.eos_token_ids = {128001};
  }
  return Describe(std::move(preset), "Llama 3");
}

Preset MakeQwen3(const DecoderSize& size) {
  Preset preset = MakeDecoder(size);
  preset.config.family = "qwen3";
  preset.config.transformer.norm_eps = 1e-6;
  preset.config.transformer.query_key_norm = true;
  if (size.vocab_size == kQwen3Tokens) {
    preset.config.bos_token_id = 151643;
    preset.config.eos_token_ids = {151645, 151643};
  }
  return Describe(std::move(preset), "Qwen3");
}

Preset MakeMixtral(const DecoderSize& size) {
  Preset preset = MakeDecoder(size);
  preset.config.family = "mixtral";
  nn::TransformerConfig& t = preset.config.transformer;
  t.norm_eps = 1e-5;
  t.num_local_experts = 8;
  t.num_experts_per_tok = 2;
  // A new model learns to use all of its experts; published ones have this off.
  t.output_router_logits = true;
  t.router_aux_loss_coef = 0.02;
  if (size.vocab_size == kMixtralTokens) {
    preset.config.bos_token_id = 1;
    preset.config.eos_token_ids = {2};
  }
  return Describe(std::move(preset), "Mixtral");
}

}  // namespace

const std::vector<Preset>& Presets() {
  static const std::vector<Preset> presets = [] {
    std::vector<Preset> list = {MakeGpt2("gpt2-nano", "", kByteTokens, 128, 4, 4, 256)};
    for (const Gpt2Size& size : kGpt2Sizes) {
      list.push_back(MakeGpt2(size.name, size.alias, kGpt2Tokens, 1024, size.num_hidden_layers,
                              size.num_attention_heads, size.hidden_size));
    }
    for (const DecoderSize& size : kLlama3Sizes)
      list.push_back(MakeLlama3(size));
    for (const DecoderSize& size : kQwen3Sizes)
      list.push_back(MakeQwen3(size));
    for (const DecoderSize& size : kMixtralSizes)
      list.push_back(MakeMixtral(size));
    return list;
  }();
  return presets;
}

const Preset* FindPreset(std::string_view name) {
  for (const Preset& preset : Presets()) {
    if (preset.name == name || (!preset.alias.empty() && preset.alias == name)) return &preset;
  }
  return nullptr;
}

}  // namespace infini_train::models
