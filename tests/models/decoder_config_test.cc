// What the config.json of Llama and its kin must and may say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
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
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json Llama() {
  return json::parse(R"({"model_type":"llama","vocab_size":21,"max_position_embeddings":90,
                         "hidden_size":24,"intermediate_size":20,"num_hidden_layers":3,
                         "num_attention_heads":6})");
}

json Qwen3() {
  json config = Llama();
  config["model_type"] = "qwen3";
  config["head_dim"] = 8;
  config["num_key_value_heads"] = 2;
  return config;
}

json With(json config, const std::string& text) {
  config.update(json::parse(text));
  return config;
}

class DecoderConfig : public ::testing::Test {
 protected:
  ModelConfig Parse(const json& config) const {
    WriteBytes(folder_ / "config.json", config.dump());
    return LoadModelConfig(folder_.path());
  }
  nn::TransformerConfig Parsed(const json& config) const { return Parse(config).transformer; }
  /// The message names the file and all of `words`.
  void ExpectRefused(const json& config, const std::vector<std::string>& words) const {
    const std::string message = MessageOf([&] { Parse(config); });
    EXPECT_THAT(message, HasSubstr(folder_ / "config.json")) << config;
    for (const std::string& word : words)
      EXPECT_THAT(message, HasSubstr(word)) << config;
  }

  const TemporaryFolder folder_;
};

TEST_F(DecoderConfig, FillsInWhatLlamaDefines) {
  const ModelConfig config = Parse(Llama());
  EXPECT_EQ(config.family, "llama");
  const nn::TransformerConfig& t = config.transformer;
  EXPECT_EQ(t.num_key_value_heads, 6);
  EXPECT_EQ(t.head_dim, 4);
  EXPECT_EQ(t.norm, nn::NormType::kRmsNorm);
  EXPECT_EQ(t.norm_eps, 1e-6);
  EXPECT_EQ(t.activation, nn::Activation::kSwiGlu);
  EXPECT_EQ(t.position_embedding, nn::PositionEmbedding::kRotary);
  EXPECT_EQ(t.rope_theta, 10000);
  EXPECT_EQ(t.rope_scaling, std::nullopt);
  EXPECT_FALSE(t.attention_bias || t.attention_output_bias || t.mlp_bias || t.query_key_norm);
  EXPECT_FALSE(t.tie_word_embeddings);
  EXPECT_EQ(t.sliding_window, 0);
  EXPECT_EQ(t.attention_dropout, 0);
}

TEST_F(DecoderConfig, FillsInWhatQwen3Defines) {
  json json = Qwen3();
  json["num_attention_heads"] = 64;
  json.erase("head_dim");
  json.erase("num_key_value_heads");
  const nn::TransformerConfig t = Parsed(json);
  EXPECT_EQ(t.head_dim, 128);
  EXPECT_EQ(t.num_key_value_heads, 32);
  EXPECT_TRUE(t.query_key_norm);
  EXPECT_EQ(t.sliding_window, 0);
  json["num_key_value_heads"] = nullptr;
  EXPECT_EQ(Parsed(json).num_key_value_heads, 64);
}

TEST_F(DecoderConfig, ReadsWhatTheFileSays) {
  const ModelConfig config = Parse(With(Llama(), R"({
      "num_key_value_heads":3,"head_dim":10,"rms_norm_eps":1e-5,"tie_word_embeddings":true,
      "attention_bias":true,"mlp_bias":true,"attention_dropout":0.25,"initializer_range":0.01,
      "bos_token_id":5,"eos_token_id":[6,7]})"));
  const nn::TransformerConfig& t = config.transformer;
  EXPECT_EQ(t.num_key_value_heads, 3);
  EXPECT_EQ(t.head_dim, 10);
  EXPECT_EQ(t.norm_eps, 1e-5);
  EXPECT_TRUE(t.tie_word_embeddings);
  EXPECT_TRUE(t.attention_bias && t.attention_output_bias && t.mlp_bias);
  EXPECT_EQ(t.attention_dropout, 0.25);
  EXPECT_EQ(t.initializer_range, 0.01);
  EXPECT_EQ(config.bos_token_id, 5);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(6, 7));
}

TEST_F(DecoderConfig, IgnoresWhatChangesNothing) {
  EXPECT_EQ(Parse(With(Llama(), R"({"pretraining_tp":4,"use_cache":false,"rope_scaling":null,
                                    "sliding_window":4,"quantization_config":null,
                                    "transformers_version":"5","unknown":[{}],"hidden_act":"silu",
                                    "torch_dtype":"bfloat16","rope_parameters":{}})")),
            Parse(Llama()));
  EXPECT_EQ(Parse(With(Qwen3(), R"({"sliding_window":4,"max_window_layers":1})")), Parse(Qwen3()));
}

TEST_F(DecoderConfig, ReadsBothSpellingsOfRotaryScaling) {
  const char* kFields = R"("factor":8.0,"low_freq_factor":1.5,"high_freq_factor":4.5,
                           "original_max_position_embeddings":64)";
  const nn::RopeScaling scaling{8.0, 1.5, 4.5, 64};
  for (const std::string& text :
       {R"("rope_theta":5e5,"rope_scaling":{"rope_type":"llama3",)" + std::string(kFields) + "}",
        R"("rope_theta":5e5,"rope_scaling":{"type":"llama3",)" + std::string(kFields) + "}",
        R"("rope_parameters":{"rope_type":"llama3","rope_theta":5e5,)" + std::string(kFields) + "}",
        R"("rope_theta":7,"rope_scaling":null,"rope_parameters":{"rope_theta":5e5,
           "rope_type":"llama3","partial_rotary_factor":1.0,)" +
            std::string(kFields) + "}"}) {
    const nn::TransformerConfig t = Parsed(With(Llama(), "{" + text + "}"));
    EXPECT_EQ(t.rope_theta, 5e5) << text;
    EXPECT_EQ(t.rope_scaling, scaling) << text;
  }
  const nn::TransformerConfig plain =
      Parsed(With(Llama(), R"({"rope_parameters":{"rope_type":"default","rope_theta":3000.0}})"));
  EXPECT_EQ(plain.rope_theta, 3000);
  EXPECT_EQ(plain.rope_scaling, std::nullopt);
}

TEST_F(DecoderConfig, RefusesRotaryPositionsOfOtherKinds) {
  for (const char* object : {"rope_scaling", "rope_parameters"}) {
    const auto with = [&](const std::string& fields) {
      return With(Llama(), "{\"" + std::string(object) + "\":{" + fields + "}}");
    };
    for (const char* type : {"linear", "dynamic", "yarn", "longrope", "mrope", ""}) {
      const std::string quoted = "\"" + std::string(type) + "\"";
      ExpectRefused(with("\"rope_type\":" + quoted + ",\"factor\":2.0"),
                    {object, "rope_type", "llama3", quoted});
      ExpectRefused(with("\"type\":" + quoted + ",\"factor\":2.0"), {object, "type", quoted});
    }
    ExpectRefused(with(R"("rope_type":3)"), {object, "rope_type"});
    ExpectRefused(with(R"("partial_rotary_factor":0.5)"), {object, "partial_rotary_factor"});
    ExpectRefused(with(R"("full_attention":{"rope_type":"default"})"), {object, "full_attention"});
    json good = with(R"("rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,
                        "high_freq_factor":4.0,"original_max_position_embeddings":64)");
    EXPECT_NO_THROW(Parse(good));
    for (const char* field :
         {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      json bad = good;
      bad[object].erase(field);
      ExpectRefused(bad, {object, field, "missing"});
      bad[object][field] = -1;
      ExpectRefused(bad, {"rope_scaling"});
      bad[object][field] = "8";
      ExpectRefused(bad, {object, field});
    }
  }
  ExpectRefused(With(Llama(), R"({"partial_rotary_factor":0.5})"), {"partial_rotary_factor"});
  ExpectRefused(With(Llama(), R"({"rope_scaling":[1]})"), {"rope_scaling", "object"});
  ExpectRefused(With(Llama(), R"({"rope_theta":0})"), {"rope_theta"});
}

TEST_F(DecoderConfig, RefusesWhatChangesTheMaths) {
  for (const json& base : {Llama(), Qwen3()}) {
    ExpectRefused(With(base, R"({"hidden_act":"gelu"})"), {"hidden_act", "silu", "gelu"});
    ExpectRefused(With(base, R"({"quantization_config":{"bits":4}})"), {"quantization_config"});
    ExpectRefused(With(base, R"({"num_key_value_heads":4})"), {"num_key_value_heads", "4"});
    ExpectRefused(With(base, R"({"head_dim":5})"), {"head_dim", "even"});
    ExpectRefused(With(base, R"({"head_dim":0})"), {"head_dim"});
    ExpectRefused(With(base, R"({"attention_dropout":1.0})"), {"attention_dropout"});
  }
  ExpectRefused(With(Llama(), R"({"num_attention_heads":5})"),
                {"num_attention_heads", "hidden_size 24"});
  ExpectRefused(With(Llama(), R"({"num_attention_heads":0})"), {"num_attention_heads"});
}

TEST_F(DecoderConfig, NamesSizesThatAreMissing) {
  for (const char* field : {"vocab_size", "max_position_embeddings", "hidden_size",
                            "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    json config = Llama();
    config.erase(field);
    ExpectRefused(config, {field, "missing"});
  }
}

TEST_F(DecoderConfig, ReadsTheWindowsOfQwen3) {
  const std::string on = R"("use_sliding_window":true,"sliding_window":4)";
  const auto with = [&](const std::string& fields) { return With(Qwen3(), "{" + fields + "}"); };
  nn::TransformerConfig t = Parsed(with(on + R"(,"max_window_layers":1)"));
  EXPECT_EQ(t.sliding_window, 4);
  EXPECT_EQ(t.max_window_layers, 1);
  EXPECT_EQ(Parsed(with(on + R"(,"layer_types":["full_attention","sliding_attention",
                                                "sliding_attention"])")),
            t);
  EXPECT_EQ(Parsed(with(on + R"(,"max_window_layers":0)")).max_window_layers, 0);
  // No layer has a window.
  const nn::TransformerConfig none = Parsed(Qwen3());
  EXPECT_EQ(Parsed(with(on)), none);
  EXPECT_EQ(Parsed(with(on + R"(,"max_window_layers":3)")), none);
  EXPECT_EQ(Parsed(with(R"("use_sliding_window":true,"sliding_window":null,
                           "max_window_layers":0)")),
            none);
  EXPECT_EQ(Parsed(with(R"("layer_types":["full_attention","full_attention","full_attention"])")),
            none);

  const char* kMixed = R"(,"layer_types":["sliding_attention","full_attention","full_attention"])";
  ExpectRefused(with(on + kMixed), {"layer_types", "3 layers"});
  ExpectRefused(with(on + R"(,"layer_types":["full_attention","full_attention"])"),
                {"layer_types"});
  ExpectRefused(with(R"("layer_types":["full_attention","full_attention","sliding_attention"])"),
                {"layer_types"});
  ExpectRefused(with(R"("layer_types":"full_attention")"), {"layer_types", "expected an array"});
  ExpectRefused(with(R"("use_sliding_window":true,"sliding_window":-4,"max_window_layers":0)"),
                {"sliding_window"});
  ExpectRefused(with(on + R"(,"max_window_layers":-1)"), {"max_window_layers"});
}

}  // namespace
}  // namespace infini_train::models
