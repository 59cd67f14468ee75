// evaluate, export and generate with every family.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "infini_train/data/tokenizer.h"
#include "infini_train/models/lora.h"
#include "infini_train/trainer/commands.h"
#include "infini_train/trainer/sampler.h"
#include "infini_train/trainer/trainer.h"
#include "tests/common/errors.h"
#include "tests/data/token_files.h"
#include "tests/models/golden.h"
#include "tests/models/small_model.h"

namespace infini_train::trainer {
namespace {

using infini_train::test::Golden;
using infini_train::test::SmallConfig;
using infini_train::test::SmallDecoderConfig;
using infini_train::test::SmallModel;
using infini_train::test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// What a command prints.
template <typename Options>
std::string Print(void (*command)(const Options&, std::FILE*), const Options& options) {
  std::FILE* out = std::tmpfile();
  command(options, out);
  std::rewind(out);
  std::string text;
  for (int c; (c = std::fgetc(out)) != EOF;)
    text += static_cast<char>(c);
  std::fclose(out);
  return text;
}

struct Evaluated {
  double loss = 0.0;
  double perplexity = 0.0;
  int tokens = 0;
};

Evaluated Evaluate(const std::string& model, const std::vector<std::string>& files,
                   std::int64_t sequence_length, const std::string& adapters = "") {
  EvaluateOptions options;
  options.model = model;
  options.lora_load_path = adapters;
  options.input_bin = files;
  options.batch_size = 2;
  options.sequence_length = sequence_length;
  options.device = "cpu";
  const std::string text = Print(&EvaluateCommand, options);
  Evaluated found;
  EXPECT_EQ(std::sscanf(text.c_str(), "loss %lf | perplexity %lf | %d tokens", &found.loss,
                        &found.perplexity, &found.tokens),
            3)
      << text;
  return found;
}

void Export(const std::string& model, const std::string& output, const std::string& format,
            const std::string& adapters = "") {
  ExportOptions options;
  options.model = model;
  options.lora_load_path = adapters;
  options.output = output;
  options.format = format;
  EXPECT_EQ(Print(&ExportCommand, options), "wrote " + output + "\n");
}

/// A Transformers model with the logits that it gives.
class GoldenFamily : public ::testing::TestWithParam<std::string> {
 protected:
  GoldenFamily() {
    const Tensor ids = golden_.Ids("input_ids");
    const Tensor logits = To(golden_.Get("logits"), DataType::kFloat64);
    const std::int64_t length = ids.size(1);
    for (std::int64_t row = 0; row < ids.size(0); ++row) {
      const auto tokens = Contiguous(Select(ids, 0, row)).ToVector<std::int64_t>();
      files_.push_back(folder_ / (std::to_string(row) + ".bin"));
      test::WriteTokens16(files_.back(), {tokens.begin(), tokens.end()});
      for (std::int64_t i = 0; i + 1 < length; ++i) {
        const auto x = Contiguous(Select(Select(logits, 0, row), 0, i)).ToVector<double>();
        const double largest = *std::max_element(x.begin(), x.end());
        double sum = 0.0;
        for (const double value : x)
          sum += std::exp(value - largest);
        loss_ += std::log(sum) + largest - x[static_cast<std::size_t>(tokens[i + 1])];
        ++targets_;
      }
    }
    loss_ /= targets_;
    length_ = length;
  }

  Golden golden_{GetParam()};
  TemporaryFolder folder_;
  std::vector<std::string> files_;  ///< of the rows of input_ids
  std::int64_t length_ = 0;
  double loss_ = 0.0;
  int targets_ = 0;
};

TEST_P(GoldenFamily, HasThePerplexityOfTransformersLogits) {
  const Evaluated found = Evaluate(golden_.folder(), files_, length_);
  EXPECT_EQ(found.tokens, targets_);
  EXPECT_NEAR(found.loss, loss_, 1e-5 * loss_);
  EXPECT_NEAR(found.perplexity, std::exp(loss_), 1e-4 * std::exp(loss_));
}

TEST_P(GoldenFamily, IsExportedAsItIs) {
  Export(golden_.folder(), folder_ / "exported", "huggingface");
  EXPECT_EQ(Evaluate(folder_ / "exported", files_, length_).loss,
            Evaluate(golden_.folder(), files_, length_).loss);
  EXPECT_EQ(models::LoadModelConfig(std::string(folder_ / "exported")),
            models::LoadModelConfig(golden_.folder()));
}

INSTANTIATE_TEST_SUITE_P(All, GoldenFamily,
                         ::testing::Values("gpt2", "llama", "llama_biases", "llama_one_key_head",
                                           "qwen3", "qwen3_windows", "mixtral",
                                           "mixtral_8_experts"),
                         [](const auto& info) { return info.param; });

/// A small model of a family with the byte tokenizer's vocabulary.
class SmallFamily : public ::testing::TestWithParam<std::string> {
 protected:
  SmallFamily() {
    models::ModelConfig config =
        GetParam() == "gpt2" ? SmallConfig() : SmallDecoderConfig(GetParam());
    nn::TransformerConfig& t = config.transformer;
    t.vocab_size = 257;
    t.max_position_embeddings = 24;
    t.head_dim = t.hidden_size / t.num_attention_heads;
    config.bos_token_id = 256;
    config.eos_token_ids = {256};
    model_ = SmallModel(config);
    Save();
  }

  void Save() const { models::SaveModel(model_, std::string(folder_ / "model")); }

  std::string Generate(const std::vector<std::string>& prompts, double temperature,
                       const std::string& model = "model", const std::string& adapters = "") const {
    GenerateOptions options;
    options.model = folder_ / model;
    options.lora_load_path = adapters;
    options.tokenizer = "bytes";
    options.prompt = prompts;
    options.max_new_tokens = 10;
    options.sampling.temperature = temperature;
    options.device = "cpu";
    return Print(&GenerateCommand, options);
  }

  TemporaryFolder folder_;
  models::Model model_;
};

TEST_P(SmallFamily, IsTheSameInAnLlmcFile) {
  const std::string tokens = folder_ / "tokens.bin";
  test::WriteShard16(tokens, 100);
  Export(folder_ / "model", folder_ / "model.bin", "llmc");
  const Evaluated expected = Evaluate(folder_ / "model", {tokens}, 0);
  const Evaluated found = Evaluate(folder_ / "model.bin", {tokens}, 0);
  EXPECT_EQ(found.tokens, 99);
  EXPECT_NEAR(found.loss, expected.loss, 1e-6 * expected.loss);
}

TEST_P(SmallFamily, TextsOfABatchAreWhatTheyAreAlone) {
  const std::vector<std::string> prompts = {"a", "another line", "", "four words, twenty b."};
  for (const double temperature : {0.0, 1.0}) {
    std::string expected;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      expected += "--- " + std::to_string(i + 1) + "/4 ---\n";
      expected += Generate({prompts[i]}, temperature);
    }
    EXPECT_EQ(Generate(prompts, temperature), expected);
  }
}

// Trained with the model, saved, and merged by every command that takes a model as it is.
TEST_P(SmallFamily, AdaptersAreTrainedAndMergedByEveryCommand) {
  const std::string tokens = folder_ / "tokens.bin";
  const std::string model = folder_ / "model";
  const std::string adapters = folder_ / "adapters";
  test::WriteShard16(tokens, 100);
  TrainOptions options;
  options.model = model;
  options.input_bin = {tokens};
  options.batch_size = 2;
  options.sequence_length = 16;
  options.num_iteration = 3;
  options.learning_rate = 0.05;
  options.dropout = 0.0;
  options.num_threads = 1;
  options.device = "cpu";
  options.lora_rank = 2;
  options.lora_target_modules =
      GetParam() == "gpt2" ? R"(h\.1\.(attn|mlp)\..*)" : R"(.*\.(q|v)_proj)";
  options.lora_save_path = adapters;
  std::FILE* out = std::tmpfile();
  EXPECT_EQ(Train(options, out), 0);
  std::fclose(out);

  const double loss = Evaluate(model, {tokens}, 0, adapters).loss;
  EXPECT_LT(loss, Evaluate(model, {tokens}, 0).loss);
  EXPECT_EQ(Evaluate(adapters, {tokens}, 0).loss, loss) << "their base is where it was";
  const std::string text = Generate({"line"}, 0.0, "model", adapters);
  EXPECT_NE(text, Generate({"line"}, 0.0));
  EXPECT_EQ(Generate({"line"}, 0.0, "adapters"), text);
  for (const std::string format : {"huggingface", "llmc"}) {
    Export(model, folder_ / format, format, adapters);
    EXPECT_NEAR(Evaluate(folder_ / format, {tokens}, 0).loss, loss, 1e-6 * loss) << format;
  }
  EXPECT_EQ(Generate({"line"}, 0.0, "huggingface"), text);
}

// Adapters of modules that the model lacks, of other sizes, or of other layers.
TEST_P(SmallFamily, AdaptersOfAnotherModelAreRefusedByName) {
  const std::string adapters = folder_ / "adapters";
  models::Lora(model_, {.rank = 2}, 1).Save(adapters, "");
  const auto refusal = [&](const std::string& family, auto change) {
    models::ModelConfig config = family == "gpt2" ? SmallConfig() : SmallDecoderConfig(family);
    change(config.transformer);
    models::SaveModel(models::CreateModel(config, 1), std::string(folder_ / "other"));
    return test::MessageOf(
        [&] { Export(folder_ / "other", folder_ / "none", "huggingface", adapters); });
  };
  const std::string weights = adapters + "/adapter_model.safetensors does not fit the model";
  if (GetParam() == "gpt2") {
    EXPECT_THAT(refusal("llama", [](auto&) {}),
                AllOf(StartsWith(weights), HasSubstr("missing: base_model.model.model.layers."),
                      HasSubstr("unexpected: base_model.model.transformer.h.{0-1}.attn.c_attn.")));
  } else {
    EXPECT_THAT(refusal("gpt2", [](auto&) {}),
                AllOf(StartsWith(adapters + "/adapter_config.json: target_modules: "),
                      HasSubstr("q_proj"), HasSubstr("expected all-linear, c_attn, ")));
  }
  const std::string projection = GetParam() == "gpt2" ? "attn.c_attn" : "self_attn.q_proj";
  const auto widen = [](nn::TransformerConfig& config) {
    config.hidden_size *= 2;
    config.head_dim *= 2;
  };
  EXPECT_THAT(refusal(GetParam(), widen), AllOf(StartsWith(weights), HasSubstr("wrong shape: "),
                                                HasSubstr(projection + ".lora_A")));
  EXPECT_THAT(
      refusal(GetParam(), [](auto& config) { config.num_hidden_layers += 1; }),
      AllOf(StartsWith(weights), HasSubstr("missing: "), HasSubstr(projection + ".lora_A")));
}

TEST_P(SmallFamily, TextsEndAtAnyOfTheEndIds) {
  std::vector<std::int32_t> ids;
  Generator generator;
  trainer::Generate(model_, {'l', 'i', 'n', 'e'}, -1, 10, {}, {.temperature = 0.0}, generator,
                    [&](std::int64_t id) {
                      ids.push_back(static_cast<std::int32_t>(id));
                      return true;
                    });
  const std::int32_t last = ids[2];
  ids.erase(std::find(ids.begin(), ids.end(), last) + 1, ids.end());
  model_.config.eos_token_ids = {256, last};
  Save();
  const auto tokenizer = LoadTokenizer("bytes");
  StreamingDecoder decoder(tokenizer);
  std::string expected = "line";
  for (const std::int32_t id : ids)
    expected += decoder.Push(id);
  EXPECT_EQ(Generate({"line"}, 0.0), expected + decoder.Finish() + "\n");
}

INSTANTIATE_TEST_SUITE_P(All, SmallFamily, ::testing::Values("gpt2", "llama", "qwen3", "mixtral"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace infini_train::trainer
