// Mixtral's config.json, its tensors under published and recent names, and its llm.c files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
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

namespace fs = std::filesystem;

using infini_train::test::BytesOf;
using infini_train::test::ExpectSameModel;
using infini_train::test::MessageOf;
using infini_train::test::SmallDecoderConfig;
using infini_train::test::SmallModel;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteBytes;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Three experts of two for a token.
ModelConfig SmallMixtral() {
  ModelConfig config = SmallDecoderConfig("mixtral");
  config.transformer.head_dim = 4;
  config.transformer.num_local_experts = 3;
  return config;
}

json MixtralJson(const std::string& more = "{}") {
  json config = json::parse(R"({"model_type":"mixtral","vocab_size":21,"hidden_size":64,
      "max_position_embeddings":90,"intermediate_size":20,"num_hidden_layers":3,
      "num_attention_heads":16})");
  config.update(json::parse(more));
  return config;
}

nn::TransformerConfig Parsed(const json& config) {
  const TemporaryFolder folder;
  WriteBytes(folder / "config.json", config.dump());
  return LoadModelConfig(folder.path()).transformer;
}

TEST(MixtralConfig, HasTransformersDefaults) {
  const nn::TransformerConfig t = Parsed(MixtralJson());
  EXPECT_EQ(t.num_local_experts, 8);
  EXPECT_EQ(t.num_experts_per_tok, 2);
  EXPECT_FALSE(t.output_router_logits);
  EXPECT_EQ(t.router_aux_loss_coef, 0.001);
  EXPECT_EQ(t.router_jitter_noise, 0.0);
  EXPECT_EQ(t.sliding_window, 0);
  EXPECT_EQ(t.num_key_value_heads, 8);
  EXPECT_EQ(t.rope_theta, 1e6);
  EXPECT_EQ(t.norm_eps, 1e-5);
  EXPECT_FALSE(t.tie_word_embeddings);
}

TEST(MixtralConfig, ReadsItsFieldsAndWritesThemBack) {
  const std::string fields = R"({"num_local_experts":4,"num_experts_per_tok":1,
      "output_router_logits":true,"router_aux_loss_coef":0.02,"router_jitter_noise":0.1,
      "sliding_window":9})";
  const nn::TransformerConfig t = Parsed(MixtralJson(fields));
  EXPECT_EQ(t.num_local_experts, 4);
  EXPECT_EQ(t.num_experts_per_tok, 1);
  EXPECT_TRUE(t.output_router_logits);
  EXPECT_EQ(t.router_aux_loss_coef, 0.02);
  EXPECT_EQ(t.router_jitter_noise, 0.1);
  EXPECT_EQ(t.sliding_window, 9);

  const TemporaryFolder folder;
  ModelConfig config = SmallMixtral();
  config.transformer.sliding_window = 5;
  config.transformer.router_jitter_noise = 0.25;
  SaveModel(SmallModel(config), folder.path());
  EXPECT_EQ(LoadModelConfig(folder.path()), config);
}

TEST(MixtralConfig, RefusesWhatMakesNoSense) {
  const auto message = [](const char* fields) {
    return MessageOf([&] { Parsed(MixtralJson(fields)); });
  };
  EXPECT_THAT(message(R"({"num_local_experts":0})"),
              HasSubstr("num_local_experts: expected 1 or more, found 0"));
  EXPECT_THAT(message(R"({"num_experts_per_tok":9})"),
              HasSubstr("num_experts_per_tok: expected 1 to num_local_experts (8), got 9"));
  EXPECT_THAT(message(R"({"router_aux_loss_coef":-1})"), HasSubstr("router_aux_loss_coef"));
  EXPECT_THAT(message(R"({"router_jitter_noise":1})"), HasSubstr("router_jitter_noise"));
  EXPECT_THAT(message(R"({"sliding_window":0})"), HasSubstr("sliding_window: expected null"));
  EXPECT_THAT(message(R"({"hidden_act":"gelu"})"), HasSubstr("hidden_act"));
}

TEST(MixtralConfig, DiffersByEachOfItsFields) {
  const ModelConfig a = SmallMixtral();
  ModelConfig b = a;
  b.transformer.num_local_experts = 4;
  b.transformer.num_experts_per_tok = 1;
  b.transformer.output_router_logits = false;
  b.transformer.router_aux_loss_coef = 1;
  b.transformer.router_jitter_noise = 0.5;
  EXPECT_EQ(Differences(a, b).size(), 5u);
}

TEST(MixtralFiles, HaveThePublishedNames) {
  const TemporaryFolder folder;
  const Model model = SmallModel(SmallMixtral());
  SaveModel(model, folder.path());
  ExpectSameModel(LoadModel(folder.path()), model);

  const checkpoint::SafetensorsFolder files(folder.path());
  const std::string layer = "model.layers.1.block_sparse_moe.";
  EXPECT_EQ(files.shape(layer + "gate.weight"), Dims({3, 16}));
  EXPECT_EQ(files.shape(layer + "experts.2.w1.weight"), Dims({20, 16}));
  EXPECT_EQ(files.shape(layer + "experts.2.w3.weight"), Dims({20, 16}));
  EXPECT_EQ(files.shape(layer + "experts.2.w2.weight"), Dims({16, 20}));
  const NamedTensors named = model.module->NamedParameters();
  for (const auto& [name, parameter] : named) {
    if (name != "h.1.mlp.experts.c_fc.weight") continue;
    const Tensor expert = Select(parameter.Detach(), 0, 2);
    EXPECT_EQ(BytesOf(files.Load(layer + "experts.2.w1.weight")),
              BytesOf(Contiguous(Slice(expert, 0, 0, 20))));
    EXPECT_EQ(BytesOf(files.Load(layer + "experts.2.w3.weight")),
              BytesOf(Contiguous(Slice(expert, 0, 20))));
  }
}

// As recent versions of Transformers keep them in memory.
TEST(MixtralFiles, MayHaveAllExpertsInOneTensor) {
  const TemporaryFolder folder;
  const Model model = SmallModel(SmallMixtral());
  SaveModel(model, folder.path());
  NamedTensors tensors;
  {
    const NoGrad no_grad;
    const checkpoint::SafetensorsFolder files(folder.path());
    for (const std::string& name : files.Names()) {
      if (name.find("block_sparse_moe") == std::string::npos)
        tensors.emplace_back(name, Clone(files.Load(name)));
    }
    const std::pair<std::string, std::string> renamed[] = {
        {"router.weight", "gate.weight"},
        {"experts.c_fc.weight", "experts.gate_up_proj"},
        {"experts.c_proj.weight", "experts.down_proj"}};
    for (const auto& [name, parameter] : model.module->NamedParameters()) {
      for (const auto& [ours, theirs] : renamed) {
        if (!name.ends_with(".mlp." + ours)) continue;
        const std::string layer = name.substr(2, name.find(".mlp.") - 2);
        tensors.emplace_back("model.layers." + layer + ".mlp." + theirs, parameter.Detach());
      }
    }
  }
  checkpoint::WriteSafetensorsFolder(folder.path(), tensors, std::int64_t{1} << 30);
  ExpectSameModel(LoadModel(folder.path()), model);

  std::erase_if(tensors, [](const auto& entry) {
    return entry.first == "model.layers.1.mlp.experts.down_proj";
  });
  checkpoint::WriteSafetensorsFolder(folder.path(), tensors, std::int64_t{1} << 30);
  EXPECT_THAT(MessageOf([&] { LoadModel(folder.path()); }),
              HasSubstr("missing: model.layers.1.block_sparse_moe.experts.{"));
}

/// An llm.c file, written from the description of the format alone.
class LlmcFile {
 public:
  explicit LlmcFile(const nn::TransformerConfig& t) : header_(256, 0) {
    const std::pair<int, std::int64_t> integers[] = {{0, 20260513},
                                                     {1, 2},
                                                     {2, t.max_position_embeddings},
                                                     {3, t.vocab_size},
                                                     {4, t.num_hidden_layers},
                                                     {5, t.num_attention_heads},
                                                     {6, t.num_key_value_heads},
                                                     {7, t.hidden_size},
                                                     {8, t.num_local_experts},
                                                     {15, t.num_experts_per_tok},
                                                     {16, t.intermediate_size}};
    for (const auto& [index, value] : integers)
      set(index, static_cast<std::int32_t>(value));
    set(12, static_cast<float>(t.norm_eps));
    set(13, static_cast<float>(t.rope_theta));
  }
  template <typename T>
  void set(int index, T value) {
    std::memcpy(&header_[static_cast<std::size_t>(index)], &value, 4);
  }
  void Append(const Tensor& tensor) {
    const std::vector<float> values = Contiguous(tensor).ToVector<float>();
    payload_.insert(payload_.end(), values.begin(), values.end());
  }
  std::string Bytes() const {
    std::string bytes(reinterpret_cast<const char*>(header_.data()), 1024);
    return bytes.append(reinterpret_cast<const char*>(payload_.data()), 4 * payload_.size());
  }

 private:
  std::vector<std::int32_t> header_;
  std::vector<float> payload_;
};

LlmcFile FileOf(const Model& model) {
  const NoGrad no_grad;
  const nn::TransformerConfig& t = model.config.transformer;
  const auto find = [&](const std::string& name) {
    for (const auto& [candidate, parameter] : model.module->NamedParameters()) {
      if (candidate == name) return parameter.Detach();
    }
    ADD_FAILURE() << name;
    return Tensor();
  };
  LlmcFile file(t);
  file.Append(find("wte.weight"));
  for (int i = 0; i < t.num_hidden_layers; ++i) {
    const std::string layer = "h." + std::to_string(i) + ".";
    file.Append(find(layer + "ln_1.weight"));
    // Rows of queries, keys and values follow each other in the model, too.
    file.Append(find(layer + "attn.c_attn.weight"));
    file.Append(find(layer + "attn.c_proj.weight"));
    file.Append(find(layer + "ln_2.weight"));
    file.Append(find(layer + "mlp.router.weight"));
    for (int e = 0; e < t.num_local_experts; ++e) {
      // So do those of gate and up.
      file.Append(Select(find(layer + "mlp.experts.c_fc.weight"), 0, e));
      file.Append(Select(find(layer + "mlp.experts.c_proj.weight"), 0, e));
    }
  }
  file.Append(find("ln_f.weight"));
  file.Append(find("lm_head.weight"));
  return file;
}

/// What an llm.c file holds of a small model.
ModelConfig LlmcConfig() {
  ModelConfig config = SmallMixtral();
  config.bos_token_id = -1;
  config.eos_token_ids = {};
  config.transformer.output_router_logits = false;
  config.transformer.router_aux_loss_coef = 0.001;
  return config;
}

TEST(MixtralLlmc, IsReadLayerByLayer) {
  const TemporaryFolder folder;
  const Model model = SmallModel(LlmcConfig());
  WriteBytes(folder / "model.bin", FileOf(model).Bytes());
  ExpectSameModel(LoadModel(folder / "model.bin"), model);
  SaveLlmcCheckpoint(model, folder / "written.bin");
  ExpectSameModel(LoadModel(folder / "written.bin"), model);
}

TEST(MixtralLlmc, RefusesOtherHeadersAndSizes) {
  const TemporaryFolder folder;
  const std::string path = folder / "model.bin";
  const Model model = SmallModel(LlmcConfig());
  const LlmcFile good = FileOf(model);
  const auto message = [&](const std::string& bytes) {
    WriteBytes(path, bytes);
    return MessageOf([&] { LoadModel(path); });
  };
  const auto with = [&](int index, auto value) {
    LlmcFile file = good;
    file.set(index, value);
    return message(file.Bytes());
  };
  EXPECT_THAT(with(14, 1), AllOf(HasSubstr(path), HasSubstr("use_scaled_rope: expected 0")));
  EXPECT_THAT(with(8, 0), HasSubstr("num_experts: expected 1 or more, found 0"));
  EXPECT_THAT(with(15, 4), HasSubstr("num_experts_per_tok"));
  EXPECT_THAT(with(16, 0), HasSubstr("intermediate_size"));
  EXPECT_THAT(with(1, 3), HasSubstr(path));
  for (const int index : {3, 4, 5, 6, 7, 8, 15, 16})
    EXPECT_THAT(with(index, 2'147'483'647), HasSubstr(path)) << index;
  const std::string bytes = good.Bytes();
  EXPECT_THAT(message(bytes + "1234"), HasSubstr(path));
  EXPECT_THAT(message(bytes.substr(0, bytes.size() - 4)), HasSubstr(path));
}

TEST(MixtralLlmc, RefusesModelsThatTheFormatCannotHold) {
  const TemporaryFolder folder;
  ModelConfig config = LlmcConfig();
  config.transformer.sliding_window = 4;
  EXPECT_THAT(MessageOf([&] { SaveLlmcCheckpoint(SmallModel(config), folder / "f"); }),
              HasSubstr("sliding_window"));
  EXPECT_THAT(MessageOf([&] {
                SaveLlmcCheckpoint(SmallModel(LlmcConfig()), folder / "f", DataType::kBFloat16);
              }),
              HasSubstr("bfloat16"));
  EXPECT_FALSE(fs::exists(folder / "f"));
}

}  // namespace
}  // namespace infini_train::models
