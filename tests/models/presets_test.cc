#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/models/model.h"
#include "tests/common/bytes.h"
#include "tests/common/errors.h"
#include "tests/models/small_model.h"

namespace infini_train::models {
namespace {

using infini_train::test::BytesOf;
using infini_train::test::ExpectSameModel;
using infini_train::test::SmallConfig;
using infini_train::test::SmallDecoderConfig;

TEST(Presets, HaveTheKnownNumbersOfParameters) {
  const std::pair<const char*, std::int64_t> known[] = {{"gpt2", 124'439'808},
                                                        {"d12", 124'439'808},
                                                        {"gpt2-medium", 354'823'168},
                                                        {"d24", 354'823'168},
                                                        {"gpt2-large", 774'030'080},
                                                        {"d36", 774'030'080},
                                                        {"gpt2-xl", 1'557'611'200},
                                                        {"d48", 1'557'611'200},
                                                        {"llama3", 1'235'814'400},
                                                        {"llama3.2-1b", 1'235'814'400},
                                                        {"llama3.2-3b", 3'212'749'824},
                                                        {"llama3-8b", 8'030'261'248},
                                                        {"llama3.1-8b", 8'030'261'248},
                                                        {"llama3-70b", 70'553'706'496},
                                                        {"llama3.1-70b", 70'553'706'496},
                                                        {"llama3.1-405b", 405'853'388'800},
                                                        {"qwen3", 596'049'920},
                                                        {"qwen3-0.6b", 596'049'920},
                                                        {"qwen3-1.7b", 1'720'574'976},
                                                        {"qwen3-4b", 4'022'468'096},
                                                        {"qwen3-8b", 8'190'735'360},
                                                        {"qwen3-14b", 14'768'307'200},
                                                        {"qwen3-32b", 32'762'123'264},
                                                        {"mixtral", 1'160'373'248},
                                                        {"mixtral-1.2b", 1'160'373'248},
                                                        {"mixtral-8x7b", 46'702'792'704}};
  for (const auto& [name, count] : known) {
    const Preset* preset = FindPreset(name);
    ASSERT_NE(preset, nullptr) << name;
    EXPECT_EQ(preset->config.transformer.NumParameters(), count) << name;
  }
  for (const Preset& preset : Presets()) {
    preset.config.transformer.Validate();
    EXPECT_EQ(FindPreset(preset.name), &preset);
    if (!preset.alias.empty()) {
      EXPECT_EQ(FindPreset(preset.alias), &preset);
    }
    EXPECT_FALSE(preset.description.empty());
  }
  EXPECT_EQ(FindPreset("gpt3"), nullptr);
  EXPECT_EQ(FindPreset(""), nullptr);
}

TEST(Presets, AModelThatTheMemoryCannotHoldIsRefused) {
  EXPECT_THAT(
      test::MessageOf([] { CreateModel(FindPreset("llama3.1-405b")->config, 1); }),
      ::testing::MatchesRegex("expected a model that fits the .* GiB of memory of cpu, found "
                              "one of 405853388800 parameters, which take 1511.9 GiB in "
                              "float32"));
}

TEST(Presets, EndTextsAsTheirTokenizersDo) {
  const std::pair<const char*, std::vector<std::int64_t>> ends[] = {
      {"gpt2", {50256}},    {"gpt2-nano", {256}},        {"llama3-nano", {256}},
      {"llama3", {128001}}, {"qwen3", {151645, 151643}}, {"qwen3-nano", {256}},
      {"mixtral", {2}},     {"mixtral-nano", {256}}};
  for (const auto& [name, tokens] : ends)
    EXPECT_EQ(FindPreset(name)->config.eos_token_ids, tokens) << name;
}

TEST(Presets, CreateModelsOfThatManyParameters) {
  for (const char* name : {"gpt2-nano", "llama3-nano", "qwen3-nano", "mixtral-nano"}) {
    const ModelConfig& config = FindPreset(name)->config;
    const Model model = CreateModel(config, 7);
    std::int64_t count = 0;
    for (const Tensor& parameter : model.module->Parameters())
      count += parameter.numel();
    EXPECT_EQ(count, config.transformer.NumParameters()) << name;
    ExpectSameModel(CreateModel(config, 7), model);
    EXPECT_NE(BytesOf(CreateModel(config, 8).module->head_weight()),
              BytesOf(model.module->head_weight()));
  }
}

TEST(Differences, NameEachFieldWithBothValues) {
  const ModelConfig a = SmallConfig();
  ModelConfig b = a;
  EXPECT_TRUE(Differences(a, b).empty());
  b.transformer.hidden_size = 16;
  b.transformer.tie_word_embeddings = false;
  b.transformer.norm = nn::NormType::kRmsNorm;
  b.transformer.activation = nn::Activation::kRelu;
  b.transformer.position_embedding = nn::PositionEmbedding::kRotary;
  EXPECT_THAT(Differences(a, b),
              ::testing::ElementsAre("hidden_size: 8 and 16", "norm: LayerNorm and RMSNorm",
                                     "activation: gelu_new and relu",
                                     "position_embedding: learned and rotary",
                                     "tie_word_embeddings: true and false"));
  b = a;
  b.transformer.residual_dropout = 0.5;
  b.transformer.initializer_range = 1;
  b.eos_token_ids = {1, 2, 3};
  EXPECT_TRUE(Differences(a, b).empty());
}

TEST(Differences, NameWhatTellsRotaryPositionsApart) {
  ModelConfig a = SmallDecoderConfig("llama");
  a.transformer.rope_scaling = nn::RopeScaling{8, 1, 4, 8192};
  for (const auto& change : std::vector<void (*)(nn::TransformerConfig&)>{
           [](auto& t) { t.rope_scaling.reset(); }, [](auto& t) { t.rope_scaling->factor = 32; },
           [](auto& t) { t.rope_scaling->low_freq_factor = 2; },
           [](auto& t) { t.rope_scaling->high_freq_factor = 5; },
           [](auto& t) { t.rope_scaling->original_max_position_embeddings = 64; }}) {
    ModelConfig b = a;
    change(b.transformer);
    EXPECT_THAT(Differences(a, b),
                ::testing::ElementsAre(::testing::StartsWith("rope_scaling: llama3 (factor 8")));
  }
  ModelConfig b = a;
  b.transformer.rope_theta = 1;
  b.transformer.sliding_window = 4;
  b.transformer.max_window_layers = 1;
  EXPECT_EQ(Differences(a, b).size(), 3u);
}

}  // namespace
}  // namespace infini_train::models
