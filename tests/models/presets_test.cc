#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/models/model.h"
#include "tests/models/small_model.h"

namespace infini_train::models {
namespace {

using infini_train::testing::BytesOf;
using infini_train::testing::ExpectSameModel;
using infini_train::testing::SmallConfig;

TEST(Presets, HaveTheKnownNumbersOfParameters) {
  const std::pair<const char*, std::int64_t> known[] = {
      {"gpt2", 124'439'808},      {"d12", 124'439'808},        {"gpt2-medium", 354'823'168},
      {"d24", 354'823'168},       {"gpt2-large", 774'030'080}, {"d36", 774'030'080},
      {"gpt2-xl", 1'557'611'200}, {"d48", 1'557'611'200}};
  for (const auto& [name, count] : known) {
    const Preset* preset = FindPreset(name);
    ASSERT_NE(preset, nullptr) << name;
    EXPECT_EQ(preset->config.transformer.NumParameters(), count) << name;
    EXPECT_EQ(preset->config.eos_token_ids, std::vector<std::int64_t>{50256});
  }
  for (const Preset& preset : Presets()) {
    preset.config.transformer.Validate();
    EXPECT_EQ(FindPreset(preset.name), &preset);
    EXPECT_FALSE(preset.description.empty());
  }
  EXPECT_EQ(FindPreset("gpt3"), nullptr);
}

TEST(Presets, CreateModelsOfThatManyParameters) {
  const ModelConfig& config = FindPreset("gpt2-nano")->config;
  const Model model = CreateModel(config, 7);
  std::int64_t count = 0;
  for (const Tensor& parameter : model.module->Parameters())
    count += parameter.numel();
  EXPECT_EQ(count, config.transformer.NumParameters());
  ExpectSameModel(CreateModel(config, 7), model);
  EXPECT_NE(BytesOf(CreateModel(config, 8).module->head_weight()),
            BytesOf(model.module->head_weight()));
}

TEST(Differences, NameEachFieldWithBothValues) {
  const ModelConfig a = SmallConfig();
  ModelConfig b = a;
  EXPECT_TRUE(Differences(a, b).empty());
  b.transformer.hidden_size = 16;
  b.transformer.tie_word_embeddings = false;
  EXPECT_THAT(Differences(a, b), ::testing::ElementsAre("hidden_size: 8 and 16",
                                                        "tie_word_embeddings: true and false"));
}

}  // namespace
}  // namespace infini_train::models
