// Folders of Llama and its kin: names, packed rows, and what does not fit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/file.h"
#include "infini_train/models/model.h"
#include "tests/common/bytes.h"
#include "tests/common/errors.h"
#include "tests/common/temporary_folder.h"
#include "tests/models/small_model.h"

namespace infini_train::models {
namespace {

using infini_train::test::BytesOf;
using infini_train::test::ExpectSameModel;
using infini_train::test::MessageOf;
using infini_train::test::SmallDecoderConfig;
using infini_train::test::SmallModel;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteBytes;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class DecoderFiles : public ::testing::TestWithParam<std::string> {
 protected:
  std::string path() const { return folder_ / "model"; }
  json SavedConfig() const { return json::parse(ReadFile(path() + "/config.json")); }
  void ChangeConfig(const json& changes) const {
    json config = SavedConfig();
    config.update(changes);
    WriteBytes(path() + "/config.json", config.dump());
  }
  /// Tensors of what was saved, copied out of the mapping.
  NamedTensors SavedTensors() const {
    const checkpoint::SafetensorsFolder files(path());
    NamedTensors tensors;
    for (const std::string& name : files.Names())
      tensors.emplace_back(name, Clone(files.Load(name)));
    return tensors;
  }
  void SaveTensors(const NamedTensors& tensors) const {
    checkpoint::WriteSafetensors(path() + "/model.safetensors", tensors);
  }

  const TemporaryFolder folder_;
  ModelConfig config_ = SmallDecoderConfig(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Families, DecoderFiles, ::testing::Values("llama", "qwen3"),
                         [](const auto& test) { return test.param; });

Tensor Parameter(const Model& model, const std::string& name) {
  for (const auto& [candidate, tensor] : model.module->NamedParameters()) {
    if (candidate == name) return tensor;
  }
  throw Error("no parameter " + name);
}

TEST_P(DecoderFiles, EveryConfigurableFieldComesBack) {
  nn::TransformerConfig& t = config_.transformer;
  t.norm_eps = 3e-6;
  t.rope_theta = 12345.678;
  t.rope_scaling = nn::RopeScaling{8.5, 1.25, 4.75, 64};
  t.attention_bias = t.attention_output_bias = true;
  t.mlp_bias = GetParam() == "llama";
  t.tie_word_embeddings = true;
  t.attention_dropout = 0.25;
  t.initializer_range = 0.01;
  if (GetParam() == "qwen3") {
    t.sliding_window = 4;
    t.max_window_layers = 2;
  }
  config_.bos_token_id = -1;
  const Model model = SmallModel(config_);
  for (const std::int64_t shard_bytes : {std::int64_t{1} << 30, std::int64_t{2000}}) {
    SaveModel(model, path(), {.dtype = {}, .max_shard_bytes = shard_bytes});
    ExpectSameModel(LoadModel(path()), model);
  }
}

TEST_P(DecoderFiles, HaveThePartsOfPackedParametersApart) {
  config_.transformer.attention_bias = config_.transformer.attention_output_bias = true;
  const Model model = SmallModel(config_);
  SaveModel(model, path());
  const checkpoint::SafetensorsFolder files(path());
  const NoGrad no_grad;
  const auto expect = [&](const std::string& name, const std::string& parameter, std::int64_t begin,
                          std::int64_t end) {
    const Tensor expected = Contiguous(Slice(Parameter(model, parameter), 0, begin, end));
    const std::string full = "model.layers.1." + name;
    EXPECT_EQ(files.shape(full), expected.shape()) << name;
    EXPECT_EQ(BytesOf(files.Load(full)), BytesOf(expected)) << name;
  };
  // Four query heads and two key and value heads of six.
  for (const std::string kind : {".weight", ".bias"}) {
    expect("self_attn.q_proj" + kind, "h.1.attn.c_attn" + kind, 0, 24);
    expect("self_attn.k_proj" + kind, "h.1.attn.c_attn" + kind, 24, 36);
    expect("self_attn.v_proj" + kind, "h.1.attn.c_attn" + kind, 36, 48);
  }
  expect("mlp.gate_proj.weight", "h.1.mlp.c_fc.weight", 0, 20);
  expect("mlp.up_proj.weight", "h.1.mlp.c_fc.weight", 20, 40);
  expect("mlp.down_proj.weight", "h.1.mlp.c_proj.weight", 0, 16);
  EXPECT_EQ(files.shape("lm_head.weight"), Dims({21, 16}));
  EXPECT_EQ(files.Contains("model.layers.1.self_attn.q_norm.weight"), GetParam() == "qwen3");
}

TEST_P(DecoderFiles, ConvertWhatIsStoredInOtherTypes) {
  const Model model = SmallModel(config_);
  for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
    SaveModel(model, path(), {.dtype = dtype});
    const Model loaded = LoadModel(path());
    const NoGrad no_grad;
    for (const auto& [name, parameter] : model.module->NamedParameters())
      EXPECT_EQ(BytesOf(Parameter(loaded, name)),
                BytesOf(To(To(parameter, dtype), DataType::kFloat32)))
          << name;
    const Model narrow = LoadModel(path(), {.device = {}, .dtype = DataType::kBFloat16});
    EXPECT_EQ(narrow.module->head_weight().dtype(), DataType::kBFloat16);
  }
}

TEST_P(DecoderFiles, AreReadWithoutPrefixAndWithWhatOlderProgramsAdded) {
  config_.transformer.tie_word_embeddings = true;
  const Model model = SmallModel(config_);
  SaveModel(model, path());
  NamedTensors tensors = SavedTensors();
  for (auto& [name, tensor] : tensors)
    name = name.substr(std::string("model.").size());
  for (const char* layer : {"", "layers.0.self_attn."})
    tensors.emplace_back(layer + std::string("rotary_emb.inv_freq"), Zeros({3}));
  tensors.emplace_back("lm_head.weight", Zeros({21, 16}));
  SaveTensors(tensors);
  ExpectSameModel(LoadModel(path()), model);
}

TEST_P(DecoderFiles, ListEverythingThatContradictsTheConfiguration) {
  SaveModel(SmallModel(config_), path());
  const auto expect = [&](const json& changes, const std::vector<std::string>& words) {
    const json before = SavedConfig();
    ChangeConfig(changes);
    const std::string message = MessageOf([&] { LoadModel(path()); });
    EXPECT_THAT(message, HasSubstr(path() + "/model.safetensors does not fit the model"));
    for (const std::string& word : words)
      EXPECT_THAT(message, HasSubstr(word));
    WriteBytes(path() + "/config.json", before.dump());
  };
  expect({{"num_key_value_heads", 4}},
         {"model.layers.{0-2}.self_attn.k_proj.weight (expected [24, 16], found [12, 16])",
          "model.layers.{0-2}.self_attn.v_proj.weight (expected [24, 16], found [12, 16])"});
  expect({{"intermediate_size", 24}},
         {"model.layers.{0-2}.mlp.gate_proj.weight (expected [24, 16]",
          "model.layers.{0-2}.mlp.down_proj.weight (expected [16, 24]"});
  expect({{"attention_bias", true}}, {"missing: model.layers.{0-2}.self_attn.q_proj.bias",
                                      "model.layers.{0-2}.self_attn.o_proj.bias"});
  expect({{"num_hidden_layers", 4}},
         {"missing: model.layers.3.input_layernorm.weight", "model.layers.3.mlp.down_proj.weight"});
  expect({{"num_hidden_layers", 2}}, {"unexpected: model.layers.2.input_layernorm.weight"});
  expect({{"head_dim", 8}, {"vocab_size", 22}},
         {"model.embed_tokens.weight (expected [22, 16], found [21, 16])",
          "model.layers.{0-2}.self_attn.o_proj.weight (expected [16, 32], found [16, 24])"});
}

TEST_P(DecoderFiles, SayWhatShardsLack) {
  config_.transformer.tie_word_embeddings = true;
  SaveModel(SmallModel(config_), path(), {.dtype = {}, .max_shard_bytes = 4000});
  const json index = json::parse(ReadFile(path() + "/model.safetensors.index.json"));
  const std::string head = index["weight_map"]["model.embed_tokens.weight"];
  const std::string norm = index["weight_map"]["model.norm.weight"];
  ASSERT_NE(head, norm);
  // The last shard of another model, which has fewer layers and an untied head.
  ModelConfig other = SmallDecoderConfig(GetParam());
  other.transformer.num_hidden_layers = 1;
  const std::string elsewhere = folder_ / "other";
  SaveModel(SmallModel(other), elsewhere);
  WriteBytes(path() + "/" + norm, ReadFile(elsewhere + "/model.safetensors"));
  const std::string message = MessageOf([&] { LoadModel(path()); });
  EXPECT_THAT(message, HasSubstr("model.layers.2.mlp.down_proj.weight in " + norm));
  EXPECT_THAT(message, Not(HasSubstr("model.norm.weight in " + norm)));
  std::filesystem::remove(path() + "/" + norm);
  std::filesystem::remove(path() + "/" + head);
  const std::string absent = MessageOf([&] { LoadModel(path()); });
  EXPECT_THAT(absent, HasSubstr(norm));
  EXPECT_THAT(absent, HasSubstr(head));
}

// The same weights with another kind of rotary positions are another model.
TEST_P(DecoderFiles, RotaryFieldsReachTheLoss) {
  config_.transformer.max_position_embeddings = 64;
  SaveModel(SmallModel(config_), path());
  const auto loss = [&](const json& changes) {
    ChangeConfig(changes);
    const Model model = LoadModel(path());
    std::vector<std::int64_t> tokens(48);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int64_t>(i * i % 21);
    const Tensor ids = Tensor::FromVector(tokens, {1, 48});
    const NoGrad no_grad;
    return model.module->Loss(ids, ids, 1.0 / 48).Item();
  };
  const double plain = loss(json::object());
  EXPECT_EQ(loss({{"rope_scaling", {{"rope_type", "default"}}}}), plain);
  json scaling = {{"rope_type", "llama3"},
                  {"factor", 8.0},
                  {"low_freq_factor", 1.0},
                  {"high_freq_factor", 4.0},
                  {"original_max_position_embeddings", 32}};
  const double scaled = loss({{"rope_scaling", scaling}});
  EXPECT_GT(std::abs(scaled - plain), 1e-4);
  scaling["factor"] = 2.0;
  EXPECT_GT(std::abs(loss({{"rope_scaling", scaling}}) - scaled), 1e-5);
  EXPECT_GT(std::abs(loss({{"rope_scaling", nullptr}, {"rope_theta", 77.0}}) - plain), 1e-4);
}

}  // namespace
}  // namespace infini_train::models
