#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "infini_train/models/families/decoder_family.h"
#include "infini_train/models/families/decoder_llmc.h"

namespace infini_train::models {
namespace {

constexpr std::int32_t kMagic = 20240803;
constexpr DecoderLlmcLayout kLayout = {.interleaved = true, .gate_first = false};
/// What rotary scaling in llm.c files is divided by, which they do not say: that of Llama 3.1, and
/// of 3.2 where the header gives that version.
constexpr double kLlama31Factor = 8.0;
constexpr double kLlama32Factor = 32.0;

/// How Meta's code derives the width of the MLP, and llm.c's headers tell it. Programs differ in
/// whether the product with the multiplier is rounded or cut off.
std::int64_t IntermediateSize(std::int64_t hidden_size, double multiplier, std::int64_t multiple,
                              bool rounded) {
  const std::int64_t width = 2 * (4 * hidden_size) / 3;
  const double scaled = multiplier * static_cast<double>(width);
  if (!(scaled > 0 && scaled < 0x1p31) || multiple <= 0) return 0;
  const auto whole = static_cast<std::int64_t>(rounded ? std::round(scaled) : std::trunc(scaled));
  return (whole + multiple - 1) / multiple * multiple;
}

/// A multiplier and a multiple that give the width either way: those of a published model, or else
/// ones made up for it.
std::pair<float, std::int32_t> FindMultiplier(std::int64_t hidden_size, std::int64_t width) {
  constexpr std::pair<float, std::int32_t> kPublished[] = {
      {1.3F, 1024}, {1.5F, 256}, {1.3F, 4096}, {1.0F, 256}};
  for (const auto& [multiplier, multiple] : kPublished) {
    if (IntermediateSize(hidden_size, multiplier, multiple, true) == width &&
        IntermediateSize(hidden_size, multiplier, multiple, false) == width) {
      return {multiplier, multiple};
    }
  }
  // Three quarters of the width, and the next multiple of the width itself is the width.
  const std::int64_t unscaled = std::max<std::int64_t>(2 * (4 * hidden_size) / 3, 1);
  const double wanted = std::max(0.75 * static_cast<double>(width), 1.25);
  return {static_cast<float>(wanted / static_cast<double>(unscaled)),
          static_cast<std::int32_t>(width)};
}

/// Llama 2 and 3, with the rotary scaling of 3.1 and later.
class Llama final : public DecoderFamily {
 public:
  std::string_view name() const override { return "llama"; }
  std::int32_t llmc_magic() const override { return kMagic; }

  ModelConfig ReadLlmcConfig(const std::filesystem::path& path) const override {
    const checkpoint::LlmcReader reader(path, kMagic);
    ModelConfig config;
    config.family = name();
    nn::TransformerConfig& t = config.transformer;
    t = ReadDecoderLlmcHeader(reader);
    // Cut down to an integer by llm.c, the epsilon of every Llama 3 is 0.
    if (t.norm_eps == 0) t.norm_eps = 1e-5;
    const std::int64_t multiple = reader.header(9);
    t.intermediate_size = IntermediateSizeOfFile(reader, t);
    // A multiplier that was cut down says nothing.
    if (const std::optional<double> multiplier = reader.HeaderReal(8);
        multiplier.value_or(0) != 0) {
      const std::int64_t rounded = IntermediateSize(t.hidden_size, *multiplier, multiple, true);
      const std::int64_t cut = IntermediateSize(t.hidden_size, *multiplier, multiple, false);
      if (t.intermediate_size != cut) t.intermediate_size = rounded;
    }
    if (reader.header(12) != 0) {
      const bool is_32 = reader.header(14) == 3 && reader.header(15) >= 2;
      t.rope_scaling = nn::RopeScaling{.factor = is_32 ? kLlama32Factor : kLlama31Factor};
    }
    FinishDecoderLlmcConfig(reader, t);
    if (t.vocab_size > 128001) {
      config.bos_token_id = 128000;
      config.eos_token_ids = {128001};
    }
    return config;
  }

  void ReadLlmcWeights(const Model& model, const std::filesystem::path& path) const override {
    checkpoint::LlmcReader reader(path, kMagic);
    ReadDecoderLlmcWeights(model, reader, kLayout);
  }

  void WriteLlmc(const Model& model, const std::filesystem::path& path,
                 DataType dtype) const override {
    const nn::TransformerConfig& t = model.config.transformer;
    nn::TransformerConfig expected = BaseDecoderConfig();
    const bool is_32 = t.rope_scaling && t.rope_scaling->factor == kLlama32Factor;
    if (t.rope_scaling)
      expected.rope_scaling = nn::RopeScaling{.factor = is_32 ? kLlama32Factor : kLlama31Factor};
    CheckDecoderLlmcHolds(model.config, expected);
    const auto [multiplier, multiple] = FindMultiplier(t.hidden_size, t.intermediate_size);
    checkpoint::LlmcWriter writer(
        path, kMagic, dtype,
        DecoderLlmcHeader(t, std::bit_cast<std::int32_t>(multiplier), multiple, is_32 ? 2 : 1));
    WriteDecoderLlmcWeights(model, writer, kLayout);
    writer.Commit();
  }

 protected:
  std::string_view architecture() const override { return "LlamaForCausalLM"; }

  void ParseOwnFields(const ConfigReader& reader, ModelConfig& config) const override {
    nn::TransformerConfig& t = config.transformer;
    t.attention_bias = t.attention_output_bias = reader.Boolean("attention_bias", false);
    t.mlp_bias = reader.Boolean("mlp_bias", false);
  }

  void DumpOwnFields(const ModelConfig& config, nlohmann::ordered_json& json) const override {
    json["attention_bias"] = config.transformer.attention_bias;
    json["mlp_bias"] = config.transformer.mlp_bias;
  }
};

}  // namespace

const ModelFamily& LlamaFamily() {
  static const Llama family;
  return family;
}

}  // namespace infini_train::models
