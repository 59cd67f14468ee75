// What config.json must and may say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/models/model.h"
#include "tests/common/bytes.h"
#include "tests/common/errors.h"
#include "tests/common/temporary_folder.h"

namespace infini_train::models {
namespace {

using infini_train::test::MessageOf;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

nlohmann::json GoodConfig() {
  return nlohmann::json::parse(R"({"model_type":"gpt2","vocab_size":21,"n_positions":9,"n_embd":8,
                                   "n_layer":2,"n_head":2})");
}

ModelConfig Parse(const TemporaryFolder& folder, const std::string& json) {
  WriteBytes(folder / "config.json", json);
  return LoadModelConfig(folder.path());
}

TEST(ModelConfigFile, FillsInWhatGpt2Defines) {
  const TemporaryFolder folder;
  const ModelConfig config = Parse(folder, GoodConfig().dump());
  const nn::TransformerConfig& t = config.transformer;
  EXPECT_EQ(t.head_dim, 4);
  EXPECT_EQ(t.intermediate_size, 32);
  EXPECT_EQ(t.activation, nn::Activation::kGeluTanh);
  EXPECT_EQ(t.norm_eps, 1e-5);
  EXPECT_TRUE(t.tie_word_embeddings);
  EXPECT_EQ(t.attention_dropout, 0.1);
  EXPECT_EQ(config.bos_token_id, -1);
  EXPECT_TRUE(config.eos_token_ids.empty());
}

TEST(ModelConfigFile, TakesTheOtherNamesOfFields) {
  const TemporaryFolder folder;
  EXPECT_EQ(Parse(folder, R"({"model_type":"gpt2","vocab_size":21,"max_position_embeddings":9,
                              "hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,
                              "n_inner":null,"unknown":{"a":[1]}})"),
            Parse(folder, GoodConfig().dump()));
}

TEST(ModelConfigFile, GenerationConfigNamesTheEnd) {
  const TemporaryFolder folder;
  nlohmann::json json = GoodConfig();
  json["bos_token_id"] = 5;
  json["eos_token_id"] = 6;
  EXPECT_THAT(Parse(folder, json.dump()).eos_token_ids, ::testing::ElementsAre(6));
  WriteBytes(folder / "generation_config.json", R"({"eos_token_id":[7,8]})");
  const ModelConfig config = LoadModelConfig(folder.path());
  EXPECT_THAT(config.eos_token_ids, ::testing::ElementsAre(7, 8));
  EXPECT_EQ(config.bos_token_id, 5);
  WriteBytes(folder / "generation_config.json", R"({"eos_token_id":"7"})");
  EXPECT_THAT(MessageOf([&] { LoadModelConfig(folder.path()); }),
              AllOf(HasSubstr("generation_config.json"), HasSubstr("eos_token_id")));
}

TEST(ModelConfigFile, NamesAFieldThatIsMissing) {
  const TemporaryFolder folder;
  for (const char* field :
       {"model_type", "vocab_size", "n_positions", "n_embd", "n_layer", "n_head"}) {
    for (const bool null : {false, true}) {
      nlohmann::json json = GoodConfig();
      json.erase(field);
      if (null) json[field] = nullptr;
      EXPECT_THAT(MessageOf([&] { Parse(folder, json.dump()); }),
                  AllOf(HasSubstr(folder / "config.json"), HasSubstr(field)));
    }
  }
}

TEST(ModelConfigFile, NamesAFieldOfAWrongTypeOrValue) {
  const TemporaryFolder folder;
  const std::pair<const char*, std::vector<const char*>> wrong[] = {
      {"model_type", {"7", "[]", R"("bert")", R"("")"}},
      {"vocab_size",
       {"0", "-1", "2.5", "21.0", R"("21")", "[21]", "1099511627776", "9223372036854775807",
        "18446744073709551615", "1e300"}},
      {"n_positions", {"0", "-9223372036854775808", "true"}},
      {"n_embd", {"0", "-8", "7", "4611686018427387904", "9223372036854775807"}},
      {"n_layer", {"0", "-2", "{}", "99999999999"}},
      {"n_head", {"0", "-2", "3", "9007199254740993"}},
      {"n_inner", {"0", "-1", "1.5"}},
      {"layer_norm_epsilon", {"0", "-1", R"("x")"}},
      {"embd_pdrop", {"1", "-0.1"}},
      {"attn_pdrop", {"1.5"}},
      {"resid_pdrop", {"[]"}},
      {"tie_word_embeddings", {"1", R"("true")"}},
      {"scale_attn_weights", {"0"}},
      {"activation_function", {R"("swish")", "3"}},
      {"add_cross_attention", {"true"}},
      {"quantization_config", {R"({"quant_method":"gptq"})", "true"}},
      {"bos_token_id", {R"("a")", "1.5", "18446744073709551615"}},
      {"eos_token_id", {R"([1,"a"])", "{}"}},
  };
  for (const auto& [field, values] : wrong) {
    for (const std::string value : values) {
      nlohmann::json json = GoodConfig();
      json.erase(field);
      std::string text = json.dump();
      text.back() = ',';
      text += "\"" + std::string(field) + "\":" + value + "}";
      const std::string message = MessageOf([&] { Parse(folder, text); });
      EXPECT_THAT(message, HasSubstr(folder / "config.json")) << text;
      EXPECT_LT(message.size(), 700u) << text;
    }
  }
}

TEST(ModelConfigFile, RefusesFilesThatAreNoConfiguration) {
  const TemporaryFolder folder;
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"),
        std::string("{\"\xff\":1}"), std::string(1'000'000, '['),
        R"({"model_type":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}"}) {
    EXPECT_THAT(MessageOf([&] { Parse(folder, text); }), HasSubstr(folder / "config.json"))
        << text.substr(0, 40);
  }
}

}  // namespace
}  // namespace infini_train::models
