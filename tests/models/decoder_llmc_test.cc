// llm.c files of Llama 3 and Qwen3, written here value by value from what a Hugging Face folder
// holds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "infini_train/checkpoint/llmc_checkpoint.h"
#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/file.h"
#include "infini_train/models/model.h"
#include "tests/common/bytes.h"
#include "tests/common/errors.h"
#include "tests/common/temporary_folder.h"
#include "tests/models/small_model.h"

namespace infini_train::models {
namespace {

using infini_train::test::ExpectSameModel;
using infini_train::test::MessageOf;
using infini_train::test::PeakMemory;
using infini_train::test::SmallDecoderConfig;
using infini_train::test::SmallModel;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int32_t kLlamaMagic = 20240803;
constexpr std::int32_t kQwen3Magic = 20240804;

std::int32_t Bits(float value) {
  return std::bit_cast<std::int32_t>(value);
}

/// A model of the family that its llm.c files can hold.
ModelConfig Config(const std::string& family) {
  ModelConfig config = SmallDecoderConfig(family);
  nn::TransformerConfig& t = config.transformer;
  t.head_dim = t.hidden_size / t.num_attention_heads;
  t.norm_eps = 1e-6;
  config.bos_token_id = -1;
  config.eos_token_ids.clear();
  return config;
}

/// Header and tensors of a file, to be changed before it is written.
struct LlmcFile {
  std::vector<std::int32_t> header;
  std::vector<float> values;

  void Write(const std::string& path, bool bfloat16 = false) const {
    std::vector<std::int32_t> padded = header;
    padded.resize(256);
    std::string bytes(reinterpret_cast<const char*>(padded.data()), 1024);
    for (const float value : values) {
      const BFloat16 narrow(value);
      bytes.append(
          bfloat16 ? reinterpret_cast<const char*>(&narrow) : reinterpret_cast<const char*>(&value),
          bfloat16 ? 2 : 4);
    }
    WriteBytes(path, bytes);
  }
};

/// The model's file. `interleaved`: row 2j + h of a query or key head is Hugging Face's row
/// h D/2 + j.
LlmcFile FileOf(const Model& model, std::vector<std::int32_t> header, bool interleaved,
                bool gate_first) {
  const TemporaryFolder folder;
  SaveModel(model, folder.path());
  const checkpoint::SafetensorsFolder tensors(folder.path());
  const nn::TransformerConfig& t = model.config.transformer;
  LlmcFile file{std::move(header), {}};
  const auto add = [&](const std::string& name, bool heads = false) {
    const Tensor tensor = tensors.Load(name);
    const std::vector<float> values = tensor.ToVector<float>();
    const std::int64_t columns = tensor.rank() == 2 ? tensor.size(1) : 1;
    for (std::int64_t row = 0; row < tensor.size(0); ++row) {
      std::int64_t source = row;
      if (heads && interleaved) {
        const std::int64_t in_head = row % t.head_dim;
        source = row - in_head + (in_head % 2) * (t.head_dim / 2) + in_head / 2;
      }
      for (std::int64_t column = 0; column < columns; ++column)
        file.values.push_back(values[static_cast<std::size_t>(source * columns + column)]);
    }
  };
  const auto layer = [](std::int64_t i) { return "model.layers." + std::to_string(i) + "."; };
  const auto add_kind = [&](const std::string& name) {
    for (std::int64_t i = 0; i < t.num_hidden_layers; ++i)
      add(layer(i) + name);
  };
  add("model.embed_tokens.weight");
  add_kind("input_layernorm.weight");
  for (std::int64_t i = 0; t.query_key_norm && i < t.num_hidden_layers; ++i) {
    add(layer(i) + "self_attn.q_norm.weight", true);
    add(layer(i) + "self_attn.k_norm.weight", true);
  }
  for (std::int64_t i = 0; i < t.num_hidden_layers; ++i) {
    add(layer(i) + "self_attn.q_proj.weight", true);
    add(layer(i) + "self_attn.k_proj.weight", true);
    add(layer(i) + "self_attn.v_proj.weight");
  }
  add_kind("self_attn.o_proj.weight");
  add_kind("post_attention_layernorm.weight");
  add_kind(gate_first ? "mlp.gate_proj.weight" : "mlp.up_proj.weight");
  add_kind(gate_first ? "mlp.up_proj.weight" : "mlp.gate_proj.weight");
  add_kind("mlp.down_proj.weight");
  add("model.norm.weight");
  add(t.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
  return file;
}

/// Slots 0 to 15.
std::vector<std::int32_t> LlamaHeader(const ModelConfig& config) {
  const nn::TransformerConfig& t = config.transformer;
  const auto field = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  return {kLlamaMagic,
          3,
          field(t.max_position_embeddings),
          field(t.vocab_size),
          field(t.num_hidden_layers),
          field(t.num_attention_heads),
          field(t.num_key_value_heads),
          field(t.hidden_size),
          Bits(1.5F),
          4,
          Bits(static_cast<float>(t.norm_eps)),
          Bits(static_cast<float>(t.rope_theta)),
          0,
          8,
          3,
          1};
}

class DecoderLlmc : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "model.bin"; }
  void ExpectRefused(const std::vector<std::string>& words) const {
    const std::string message = MessageOf([&] { LoadModel(path()); });
    EXPECT_THAT(message, HasSubstr(path()));
    for (const std::string& word : words)
      EXPECT_THAT(message, HasSubstr(word));
  }
  const TemporaryFolder folder_;
};

// 8 hidden: int(2 * 32 / 3) = 21, times 1.5 is 31.5: 32 as a multiple of 4 if cut or rounded.
ModelConfig LlamaConfig() {
  ModelConfig config = Config("llama");
  config.transformer.hidden_size = 8;
  config.transformer.head_dim = 2;
  config.transformer.num_attention_heads = 4;
  config.transformer.intermediate_size = 32;
  return config;
}

TEST_F(DecoderLlmc, ReadsLlama3) {
  for (const bool tied : {false, true}) {
    ModelConfig config = LlamaConfig();
    config.transformer.head_dim = 4;
    config.transformer.num_attention_heads = config.transformer.num_key_value_heads = 2;
    config.transformer.tie_word_embeddings = tied;
    const Model model = SmallModel(config);
    FileOf(model, LlamaHeader(config), true, false).Write(path());
    ExpectSameModel(LoadModel(path()), model);
  }
}

TEST_F(DecoderLlmc, ReadsRotaryScalingOfLlama3) {
  ModelConfig config = LlamaConfig();
  const Model model = SmallModel(config);
  LlmcFile file = FileOf(model, LlamaHeader(config), true, false);
  file.header[12] = 1;
  file.Write(path());
  EXPECT_EQ(LoadModelConfig(path()).transformer.rope_scaling, (nn::RopeScaling{8, 1, 4, 8192}));
  file.header[15] = 2;
  file.Write(path());
  EXPECT_EQ(LoadModelConfig(path()).transformer.rope_scaling, (nn::RopeScaling{32, 1, 4, 8192}));
}

// llm.c assigns floats to an array of integers.
TEST_F(DecoderLlmc, ReadsHeadersWhoseRealNumbersWereCutDown) {
  ModelConfig config = LlamaConfig();
  config.transformer.norm_eps = 1e-5;
  config.transformer.rope_theta = 500000;
  // Neither a multiplier of 1 nor of 1.3 would give this.
  config.transformer.intermediate_size = 44;
  const Model model = SmallModel(config);
  LlmcFile file = FileOf(model, LlamaHeader(config), true, false);
  file.header[1] = 5;
  file.header[8] = 1;
  file.header[10] = 0;
  file.header[11] = 500000;
  file.Write(path(), true);
  EXPECT_EQ(LoadModelConfig(path()), config);
  const Model loaded = LoadModel(path(), {.device = {}, .dtype = DataType::kFloat32});
  const NamedTensors expected = model.module->NamedParameters();
  const NamedTensors found = loaded.module->NamedParameters();
  const NoGrad no_grad;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(test::BytesOf(found[i].second),
              test::BytesOf(To(To(expected[i].second, DataType::kBFloat16), DataType::kFloat32)))
        << found[i].first;
  }
}

// Meta's code cuts the product with the multiplier, other programs round it.
TEST_F(DecoderLlmc, TakesTheMultiplierEitherWay) {
  for (const std::int64_t width : {31, 32}) {
    ModelConfig config = LlamaConfig();
    config.transformer.intermediate_size = width;
    LlmcFile file = FileOf(SmallModel(config), LlamaHeader(config), true, false);
    file.header[9] = 1;
    file.Write(path());
    EXPECT_EQ(LoadModelConfig(path()), config);
  }
  ModelConfig config = LlamaConfig();
  config.transformer.intermediate_size = 28;
  FileOf(SmallModel(config), LlamaHeader(config), true, false).Write(path());
  ExpectRefused({"bytes"});
}

TEST_F(DecoderLlmc, RoundTripsLlama3) {
  for (const bool tied : {false, true}) {
    for (const double factor : {0.0, 8.0, 32.0}) {
      for (const std::int64_t width : {32, 1, 2, 7, 20}) {
        ModelConfig config = LlamaConfig();
        config.transformer.tie_word_embeddings = tied;
        config.transformer.intermediate_size = width;
        if (factor > 0) config.transformer.rope_scaling = nn::RopeScaling{factor, 1, 4, 8192};
        const Model model = SmallModel(config);
        SaveLlmcCheckpoint(model, path());
        ExpectSameModel(LoadModel(path()), model);
      }
    }
  }
  const Model model = SmallModel(LlamaConfig());
  SaveLlmcCheckpoint(model, path(), DataType::kBFloat16);
  const Model loaded = LoadModel(path(), {.device = {}, .dtype = DataType::kBFloat16});
  EXPECT_EQ(loaded.config, model.config);
}

// Where the multiplier and the multiple of a published model give the width, the header has them.
TEST_F(DecoderLlmc, PrefersPublishedMultipliers) {
  for (const auto& [width, multiplier, multiple] :
       std::vector<std::tuple<std::int64_t, float, std::int32_t>>{{256, 1.5F, 256},
                                                                  {1024, 1.3F, 1024}}) {
    ModelConfig config = LlamaConfig();
    config.transformer.intermediate_size = width;
    SaveLlmcCheckpoint(SmallModel(config), path());
    const checkpoint::LlmcReader reader(path(), kLlamaMagic);
    EXPECT_EQ(reader.header(8), Bits(multiplier));
    EXPECT_EQ(reader.header(9), multiple);
  }
}

TEST_F(DecoderLlmc, ReadsBothVersionsOfQwen3) {
  for (const bool half_split : {false, true}) {
    ModelConfig config = Config("qwen3");
    nn::TransformerConfig& t = config.transformer;
    t.tie_word_embeddings = false;
    if (!half_split) t.intermediate_size = 3 * t.hidden_size;
    const Model model = SmallModel(config);
    std::vector<std::int32_t> header = LlamaHeader(config);
    header[0] = kQwen3Magic;
    header[1] = half_split ? 4 : 3;
    header[8] = half_split ? static_cast<std::int32_t>(t.intermediate_size) : 0;
    FileOf(model, header, !half_split, half_split).Write(path());
    ExpectSameModel(LoadModel(path()), model);
  }
}

TEST_F(DecoderLlmc, RoundTripsQwen3) {
  for (const bool tied : {false, true}) {
    ModelConfig config = Config("qwen3");
    config.transformer.tie_word_embeddings = tied;
    const Model model = SmallModel(config);
    SaveLlmcCheckpoint(model, path());
    ExpectSameModel(LoadModel(path()), model);
  }
  EXPECT_THAT(MessageOf([&] {
                SaveLlmcCheckpoint(SmallModel(Config("qwen3")), path(), DataType::kBFloat16);
              }),
              AllOf(HasSubstr("4 (float32)"), HasSubstr("bfloat16")));
}

TEST_F(DecoderLlmc, RefusesModelsThatTheFormatCannotHold) {
  const auto message = [&](const std::string& family, const auto& change) {
    ModelConfig config = Config(family);
    change(config.transformer);
    return MessageOf([&] { SaveLlmcCheckpoint(SmallModel(config), path()); });
  };
  using Config = nn::TransformerConfig;
  EXPECT_THAT(message("llama", [](Config& t) { t.attention_bias = true; }),
              HasSubstr("attention_bias"));
  EXPECT_THAT(message("llama", [](Config& t) { t.mlp_bias = true; }), HasSubstr("mlp_bias"));
  EXPECT_THAT(message("llama",
                      [](Config& t) {
                        t.rope_scaling = nn::RopeScaling{8, 1, 4, 64};
                      }),
              AllOf(HasSubstr("rope_scaling"), HasSubstr("64")));
  EXPECT_THAT(message("qwen3", [](Config& t) { t.head_dim = 6; }), HasSubstr("head_dim"));
  EXPECT_THAT(message("qwen3", [](Config& t) { t.sliding_window = 2; }),
              HasSubstr("sliding_window"));
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(DecoderLlmc, RefusesHostileHeadersAndTruncatedFiles) {
  const long before = PeakMemory();
  constexpr std::int32_t kMax = 2'147'483'647;
  for (const std::string family : {"llama", "qwen3"}) {
    SaveLlmcCheckpoint(SmallModel(Config(family)), path());
    const std::string good = ReadFile(path());
    const auto expect_refused = [&](const std::string& bytes) {
      WriteBytes(path(), bytes);
      ExpectRefused({});
    };
    for (int index = 1; index < 8; ++index) {
      for (const std::int32_t value : {0, -1, kMax, 1 << 30}) {
        SCOPED_TRACE(::testing::Message() << family << " header " << index << " = " << value);
        // Nothing but positions may be as many as one likes.
        if (index == 2 && value > 0) continue;
        std::string bytes = good;
        std::memcpy(&bytes[static_cast<std::size_t>(4 * index)], &value, sizeof(value));
        expect_refused(bytes);
      }
    }
    for (const float theta : {0.0F, -1.0F, INFINITY, NAN}) {
      std::string bytes = good;
      std::memcpy(&bytes[44], &theta, sizeof(theta));
      expect_refused(bytes);
    }
    for (const std::size_t size : {0, 1023, 1024, 1028, static_cast<int>(good.size()) - 1})
      expect_refused(good.substr(0, size));
    expect_refused(good + "x");
    expect_refused(good + "xyzw");
  }
  EXPECT_LT(PeakMemory() - before, 64 * 1024);
}

}  // namespace
}  // namespace infini_train::models
