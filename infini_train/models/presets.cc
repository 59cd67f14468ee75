#include <fmt/format.h>

#include "infini_train/models/model.h"

namespace infini_train::models {
namespace {

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

Preset MakeGpt2(const std::string& name, std::int64_t vocab_size, std::int64_t positions,
                std::int64_t layers, std::int64_t heads, std::int64_t hidden_size) {
  Preset preset;
  preset.name = name;
  preset.config.family = "gpt2";
  // The end of a text is the last token of GPT-2's vocabulary, and of the byte tokenizer's.
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
  preset.description = fmt::format(
      "GPT-2, {:.1f} M parameters: {} layers, hidden size {}, {} positions, {} tokens",
      static_cast<double>(t.NumParameters()) * 1e-6, layers, hidden_size, positions, vocab_size);
  return preset;
}

}  // namespace

const std::vector<Preset>& Presets() {
  static const std::vector<Preset> presets = [] {
    std::vector<Preset> list = {MakeGpt2("gpt2-nano", 257, 128, 4, 4, 256)};
    for (const Gpt2Size& size : kGpt2Sizes) {
      for (const char* name : {size.name, size.alias}) {
        list.push_back(MakeGpt2(name, 50257, 1024, size.num_hidden_layers, size.num_attention_heads,
                                size.hidden_size));
      }
    }
    return list;
  }();
  return presets;
}

const Preset* FindPreset(std::string_view name) {
  for (const Preset& preset : Presets()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

}  // namespace infini_train::models
