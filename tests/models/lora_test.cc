#include "infini_train/models/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/file.h"
#include "tests/common/errors.h"
#include "tests/common/temporary_folder.h"
#include "tests/models/small_model.h"

namespace infini_train::models {
namespace {

namespace fs = std::filesystem;

using infini_train::test::MessageOf;
using infini_train::test::SmallConfig;
using infini_train::test::SmallModel;
using infini_train::test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The layers that `targets` adapt, in order.
std::vector<std::string> Adapted(const std::string& targets) {
  const Model model = SmallModel();
  const Lora lora(model, {.rank = 2, .targets = ParseLoraTargets(targets)}, 1);
  std::vector<std::string> layers;
  for (const auto& [name, parameter] : model.module->NamedParameters()) {
    if (name.ends_with(".A")) layers.push_back(name.substr(0, name.find(".lora.")));
  }
  return layers;
}

std::string Refusal(const LoraOptions& options) {
  const Model model = SmallModel();
  return MessageOf([&] { Lora(model, options, 1); });
}

TEST(LoraTargets, AreEndsOfNamesOrAPattern) {
  EXPECT_THAT(Adapted("attn.c_proj"), ElementsAre("h.0.attn.c_proj", "h.1.attn.c_proj"));
  EXPECT_THAT(Adapted("c_proj"), ElementsAre("h.0.attn.c_proj", "h.0.mlp.c_proj", "h.1.attn.c_proj",
                                             "h.1.mlp.c_proj"));
  EXPECT_THAT(Adapted("transformer.h.1.mlp.c_fc,h.0.mlp.c_fc"),
              ElementsAre("h.0.mlp.c_fc", "h.1.mlp.c_fc"));
  EXPECT_THAT(Adapted(R"(transformer\.h\.1\..*c_(fc|attn))"),
              ElementsAre("h.1.attn.c_attn", "h.1.mlp.c_fc"));
  EXPECT_THAT(Adapted(R"(h\.[0]\.mlp\..*)"), ElementsAre("h.0.mlp.c_fc", "h.0.mlp.c_proj"));
  EXPECT_EQ(Adapted("all-linear").size(), 8u);
  EXPECT_THAT(Adapted(""), ElementsAre("h.0.attn.c_attn", "h.0.attn.c_proj", "h.0.mlp.c_proj",
                                       "h.1.attn.c_attn", "h.1.attn.c_proj", "h.1.mlp.c_proj"));
}

/// The adapters of a golden model, layers and parts of them, in order.
std::vector<std::string> AdaptedOf(const std::string& golden, const std::string& targets) {
  const Model model = LoadModel(fs::path(GOLDEN_FOLDER) / golden);
  const Lora lora(model, {.rank = 2, .targets = ParseLoraTargets(targets)}, 1);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : model.module->NamedParameters()) {
    if (name.starts_with("h.0.") && name.ends_with(".A")) names.push_back(name.substr(4));
  }
  return names;
}

std::vector<std::string> AdaptedOfLlama(const std::string& targets) {
  return AdaptedOf("llama", targets);
}

TEST(LoraTargets, PartsOfALayerHaveAdaptersOfTheirOwn) {
  EXPECT_THAT(AdaptedOfLlama("q_proj,v_proj"),
              ElementsAre("attn.c_attn.lora.q_proj.A", "attn.c_attn.lora.v_proj.A"));
  EXPECT_THAT(AdaptedOfLlama("c_attn"),
              ElementsAre("attn.c_attn.lora.q_proj.A", "attn.c_attn.lora.k_proj.A",
                          "attn.c_attn.lora.v_proj.A"));
  EXPECT_THAT(AdaptedOfLlama("self_attn.o_proj"), ElementsAre("attn.c_proj.lora.o_proj.A"));
  EXPECT_THAT(AdaptedOfLlama("mlp.c_fc"),
              ElementsAre("mlp.c_fc.lora.gate_proj.A", "mlp.c_fc.lora.up_proj.A"));
  EXPECT_THAT(AdaptedOfLlama("c_fc2"), ElementsAre("mlp.c_fc.lora.gate_proj.A"));
  EXPECT_THAT(AdaptedOfLlama(R"(model\.layers\..*\.(up|down)_proj)"),
              ElementsAre("mlp.c_fc.lora.up_proj.A", "mlp.c_proj.lora.down_proj.A"));
  EXPECT_EQ(AdaptedOfLlama("all-linear").size(), 7u);
  EXPECT_EQ(AdaptedOfLlama("").size(), 7u);
}

// PEFT's all-linear means experts and routers, too.
TEST(LoraTargets, OfAModelWithExpertsAreTheLayersOfItsAttention) {
  const auto attention = ElementsAre("attn.c_attn.lora.q_proj.A", "attn.c_attn.lora.k_proj.A",
                                     "attn.c_attn.lora.v_proj.A", "attn.c_proj.lora.o_proj.A");
  EXPECT_THAT(AdaptedOf("mixtral", "all-linear"), attention);
  EXPECT_THAT(AdaptedOf("mixtral", ""), attention);
  EXPECT_THAT(AdaptedOf("mixtral", "q_proj,v_proj"),
              ElementsAre("attn.c_attn.lora.q_proj.A", "attn.c_attn.lora.v_proj.A"));
  EXPECT_THAT(AdaptedOf("mixtral", "attn.c_proj"), ElementsAre("attn.c_proj.lora.o_proj.A"));
}

TEST(LoraTargets, NamesOfExpertsAndRoutersAreErrorsThatNameThem) {
  const Model model = LoadModel(fs::path(GOLDEN_FOLDER) / "mixtral_8_experts");
  const auto refusal = [&](const std::string& targets) {
    return MessageOf([&] { Lora(model, {.rank = 2, .targets = ParseLoraTargets(targets)}, 1); });
  };
  EXPECT_EQ(refusal("q_proj,experts.3.w2"),
            "lora_target_modules: only linear layers of blocks, outside of mixtures of experts, "
            "can have adapters; found model.layers.0.block_sparse_moe.experts.3.w2, "
            "model.layers.1.block_sparse_moe.experts.3.w2");
  EXPECT_THAT(refusal("w1"), HasSubstr("found model.layers.0.block_sparse_moe.experts.0.w1, "
                                       "model.layers.0.block_sparse_moe.experts.1.w1, "
                                       "model.layers.0.block_sparse_moe.experts.2.w1, "
                                       "model.layers.0.block_sparse_moe.experts.3.w1 and 12 more"));
  EXPECT_THAT(refusal("gate"), HasSubstr("found model.layers.0.block_sparse_moe.gate, "
                                         "model.layers.0.mlp.gate, "));
  EXPECT_THAT(refusal("gate_up_proj"),
              HasSubstr("found model.layers.0.mlp.experts.gate_up_proj, "));
  EXPECT_THAT(refusal("mlp.experts.down_proj"), HasSubstr("found model.layers.0.mlp.experts.down"));
  EXPECT_THAT(refusal("router"), HasSubstr("found h.0.mlp.router, h.1.mlp.router"));
  EXPECT_THAT(refusal("c_fc"), HasSubstr("found h.0.mlp.experts.c_fc, h.1.mlp.experts.c_fc"));
  EXPECT_THAT(refusal("c_proj"), HasSubstr("found h.0.mlp.experts.c_proj, "));
  EXPECT_THAT(refusal(R"(model\..*\.w[123])"), HasSubstr("experts.0.w1, "));
  EXPECT_THAT(refusal("gate_proj"), HasSubstr("gate_proj matches no linear layer of the model's "
                                              "blocks; expected all-linear, c_attn, c_proj, "));
  for (const auto& [name, parameter] : model.module->NamedParameters())
    EXPECT_TRUE(parameter.requires_grad()) << name << ": expected an untouched model";
}

TEST(LoraTargets, NamesThatAreNotThereAreErrors) {
  const auto refusal = [](const std::string& targets) {
    return Refusal({.rank = 2, .targets = ParseLoraTargets(targets)});
  };
  EXPECT_EQ(refusal("c_attn,q_proj"),
            "lora_target_modules: q_proj matches no linear layer of the model's blocks; expected "
            "all-linear, c_attn, c_proj, c_fc, an end of a dotted name, or a pattern for whole "
            "names");
  EXPECT_THAT(refusal("proj"), HasSubstr("proj matches no linear layer"));
  EXPECT_THAT(refusal("c_.*"), HasSubstr("c_.* matches no linear layer"));
  EXPECT_THAT(refusal("c_attn,wte"),
              HasSubstr("only linear layers of blocks, outside of mixtures of experts, can have "
                        "adapters; found wte"));
  EXPECT_THAT(refusal("h\\.(0"),
              HasSubstr("lora_target_modules: expected a regular expression, found 'h\\.(0'"));
  EXPECT_THAT(refusal(".*c_attn)|(.*c_fc"), HasSubstr("expected a regular expression"));
  EXPECT_THAT(refusal(R"(transformer\.wte|.*c_attn)"), HasSubstr("found wte"));
  EXPECT_EQ(MessageOf([] { ParseLoraTargets("c_attn,"); }),
            "lora_target_modules: expected names separated by commas, found an empty one");
}

TEST(Lora, BadNumbersAreErrors) {
  EXPECT_THAT(Refusal({.rank = 0}), HasSubstr("lora_rank: expected 1 to"));
  EXPECT_EQ(Refusal({.rank = 1, .alpha = 0.0}), "lora_alpha: expected a positive number, got 0");
  EXPECT_EQ(Refusal({.rank = 1, .dropout = 1.0}), "lora_dropout: expected 0 <= p < 1, got 1");
  const Model model = SmallModel();
  const Lora lora(model, {.rank = 1}, 1);
  EXPECT_EQ(MessageOf([&] { Lora(model, {.rank = 1}, 1); }),
            "LoRA: h.0.attn.c_attn has adapters already");
}

TEST(Lora, TheSeedGivesTheAdapters) {
  const auto adapters = [](std::uint64_t seed) {
    const Model model = SmallModel();
    const Lora lora(model, {.rank = 3}, seed);
    std::vector<std::vector<float>> values;
    for (const auto& [name, parameter] : model.module->NamedParameters())
      if (name.ends_with(".A")) values.push_back(parameter.ToVector<float>());
    return values;
  };
  EXPECT_EQ(adapters(5), adapters(5));
  EXPECT_NE(adapters(5), adapters(6));
  EXPECT_NE(adapters(5)[0], adapters(5)[3]);
}

/// A folder of adapters of the small model that a test spoils.
class SpoiledAdapters : public ::testing::Test {
 protected:
  SpoiledAdapters() {
    const Model model = SmallModel();
    Lora(model, {.rank = 2, .targets = {{"c_fc"}, {}}}, 1).Save(folder_ / "lora", "base");
  }

  std::string Load(const ModelConfig& config = SmallConfig()) {
    const Model model = SmallModel(config);
    const std::string message = MessageOf([&] { Lora::Load(model, folder_ / "lora"); });
    for (const auto& [name, parameter] : model.module->NamedParameters())
      EXPECT_TRUE(parameter.requires_grad()) << name << ": expected an untouched model";
    return message;
  }
  void Change(const std::function<void(nlohmann::json&)>& change) {
    const std::string path = folder_ / "lora/adapter_config.json";
    nlohmann::json json = nlohmann::json::parse(ReadFile(path));
    change(json);
    WriteFileAtomically(path, json.dump());
  }
  std::string LoadWith(const char* field, const nlohmann::json& value) {
    Change([&](nlohmann::json& json) { json[field] = value; });
    return Load();
  }

  TemporaryFolder folder_;
};

TEST_F(SpoiledAdapters, FieldsThatAreNotSupportedAreNamed) {
  const std::string path = folder_ / "lora/adapter_config.json";
  const struct {
    const char* field;
    nlohmann::json value;
    std::string problem;
  } kCases[] = {
      {"peft_type", "IA3", "expected \"LORA\", found \"IA3\""},
      {"bias", "all", "expected none, found \"all\": not supported"},
      {"use_dora", true, "expected null, false or nothing, found true: not supported"},
      {"modules_to_save", {"lm_head"}, "not supported"},
      {"rank_pattern", {{"c_fc", 4}}, "not supported"},
      {"layers_to_transform", {0}, "not supported"},
      {"target_parameters", {"mlp.experts.gate_up_proj"}, "not supported"},
      {"a_field_of_tomorrow", 3, "expected null, false or nothing, found 3: not supported"},
      {"init_lora_weights", "pissa", "not supported"},
      {"r", 0, "expected a positive rank, found 0"},
      {"r", "two", "expected an integer, found \"two\""},
      {"lora_dropout", 1.5, "expected 0 <= p < 1, found 1.5"},
      {"target_modules", nullptr, "expected a pattern or a list of names, found null"},
      {"target_modules", {"q_proj"}, "q_proj matches no linear layer"},
      {"target_modules", {"c_fc", "wte"}, "found wte"},
  };
  for (const auto& c : kCases) {
    nlohmann::json original;
    Change([&](nlohmann::json& json) { original = json; });
    const std::string message = LoadWith(c.field, c.value);
    EXPECT_THAT(message, HasSubstr(path + ": " + c.field + ": "));
    EXPECT_THAT(message, HasSubstr(c.problem));
    Change([&](nlohmann::json& json) { json = original; });
  }
}

TEST_F(SpoiledAdapters, FieldsThatSayNothingAreIgnored) {
  Change([](nlohmann::json& json) {
    json["alpha_pattern"] = nlohmann::json::object();
    json["loftq_config"] = nullptr;
    json["megatron_core"] = "megatron.core";
    json["use_dora"] = false;
    json["init_lora_weights"] = "gaussian";
  });
  const Model model = SmallModel();
  EXPECT_EQ(Lora::Load(model, folder_ / "lora").num_parameters(), 2 * (2 * 8 + 32 * 2));
}

TEST_F(SpoiledAdapters, AnotherModelsTensorsAreListed) {
  ModelConfig wide = SmallConfig();
  wide.transformer.intermediate_size = 40;
  EXPECT_THAT(
      Load(wide),
      HasSubstr("; wrong shape: base_model.model.transformer.h.{0-1}.mlp.c_fc.lora_B.weight "
                "(expected [40, 2], found [32, 2])"));
  ModelConfig deep = SmallConfig();
  deep.transformer.num_hidden_layers = 3;
  EXPECT_THAT(Load(deep),
              HasSubstr("; missing: base_model.model.transformer.h.2.mlp.c_fc.lora_A.weight, "
                        "base_model.model.transformer.h.2.mlp.c_fc.lora_B.weight"));
  ModelConfig shallow = SmallConfig();
  shallow.transformer.num_hidden_layers = 1;
  EXPECT_THAT(Load(shallow),
              HasSubstr("; unexpected: base_model.model.transformer.h.1.mlp.c_fc.lora_A.weight"));
}

TEST_F(SpoiledAdapters, OtherModulesThanTheConfigNamesAreListed) {
  const std::string message = LoadWith("target_modules", {"c_attn"});
  EXPECT_THAT(message,
              HasSubstr("adapter_model.safetensors does not fit the model and its "
                        "adapter_config.json; missing: base_model.model.transformer.h.{0-1}."
                        "attn.c_attn.lora_A.weight"));
  EXPECT_THAT(
      message,
      HasSubstr("; unexpected: base_model.model.transformer.h.{0-1}.mlp.c_fc.lora_A.weight"));
}

TEST_F(SpoiledAdapters, MissingFilesAreNamed) {
  fs::remove(folder_ / "lora/adapter_model.safetensors");
  EXPECT_THAT(Load(), HasSubstr("lora/adapter_model.safetensors"));
  fs::remove(folder_ / "lora/adapter_config.json");
  EXPECT_THAT(Load(), HasSubstr("lora/adapter_config.json"));
}

TEST(LoraFiles, NamesWithoutThePrefixAndOtherTypesAreRead) {
  const TemporaryFolder folder;
  const Model model = SmallModel();
  const Lora lora(model, {.rank = 2, .targets = {{"c_fc"}, {}}}, 1);
  lora.Save(folder / "lora", "");
  const std::string path = folder / "lora/adapter_model.safetensors";
  NamedTensors tensors;
  {
    const checkpoint::SafetensorsFile file(path);
    for (const std::string& name : file.Names()) {
      std::string plain = name;
      plain.erase(plain.find("transformer."), std::string("transformer.").size());
      tensors.emplace_back(plain, To(file.Load(name), DataType::kBFloat16));
    }
  }
  checkpoint::WriteSafetensors(path, tensors);
  const Model other = SmallModel();
  const Lora loaded = Lora::Load(other, folder / "lora");
  for (const auto& [name, parameter] : other.module->NamedParameters()) {
    if (name.find(".lora.") != std::string::npos) {
      EXPECT_EQ(parameter.dtype(), DataType::kFloat32) << name;
    }
  }
  EXPECT_EQ(LoraBase(folder / "lora"), "");
}

}  // namespace
}  // namespace infini_train::models
