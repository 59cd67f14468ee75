// Training and evaluation on JSON lines.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/core/file.h"
#include "infini_train/trainer/commands.h"
#include "tests/common/errors.h"
#include "tests/trainer/tiny_run.h"

namespace infini_train::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::Pointwise;

/// Small letters and the end of a text, beside the data; records of many lengths.
class FineTuning : public ::testing::Test {
 protected:
  FineTuning() {
    nlohmann::json vocabulary;
    for (char c = 'a'; c <= 'z'; ++c)
      vocabulary[std::string(1, c)] = c - 'a';
    const nlohmann::json tokenizer = {
        {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"added_tokens",
         {{{"id", kTinyVocabulary - 1}, {"content", "<|endoftext|>"}, {"special", true}}}}};
    WriteFileAtomically(run_ / "tokenizer.json", tokenizer.dump());
    std::string lines;
    for (int i = 0; i < 11; ++i) {
      const std::string text(static_cast<std::size_t>(1 + i * 5 % 7),
                             static_cast<char>('a' + 2 * i));
      lines += i % 3 == 0 ? nlohmann::json{{"prompt", "zy"}, {"completion", text}}.dump() + "\n"
                          : nlohmann::json{{"text", text}}.dump() + "\n";
    }
    WriteFileAtomically(run_ / "data.jsonl", lines);
    WriteFileAtomically(run_ / "val.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"xyz\"}\n");
  }

  TrainOptions Options() const {
    TrainOptions options = run_.Options();
    options.input_bin.clear();
    options.input_jsonl = {run_ / "data.jsonl"};
    options.sequence_length = 10;
    options.num_iteration = 6;
    options.dropout = 0.0;
    // AdamW would make steps of the rounding of gradients that are 0.
    options.optimizer = "sgd";
    options.learning_rate = 0.3;
    options.metrics_file = run_ / "metrics.jsonl";
    return options;
  }

  std::vector<double> Losses(const TrainOptions& options) const {
    RunTrain(options);
    std::vector<double> losses;
    for (const nlohmann::json& line : ReadMetrics(options.metrics_file))
      losses.push_back(line["loss"].get<double>());
    return losses;
  }

  std::string Refusal(const TrainOptions& options) const {
    return test::MessageOf([&] { RunTrain(options); });
  }

  TinyRun run_;
};

TEST_F(FineTuning, PackedSamplesTrainAsPaddedOnes) {
  TrainOptions options = Options();
  options.batch_size = 11;
  const std::vector<double> padded = Losses(options);
  ASSERT_EQ(padded.size(), 6u);
  EXPECT_LT(padded.back(), padded.front() - 0.05);
  options.packing = true;
  const Outcome outcome = RunTrain(options);
  EXPECT_THAT(outcome.output, HasSubstr("training tokens in 11 samples of 1 file, "));
  EXPECT_THAT(outcome.output, HasSubstr(" packed sequences ("));
  EXPECT_THAT(Losses(options), Pointwise(::testing::DoubleNear(2e-6), padded));
}

// The mean over all targets of a step, however many each micro-batch and rank has; the last step of
// an epoch has fewer.
TEST_F(FineTuning, TheSplitOfAStepDoesNotMatter) {
  for (const bool packing : {false, true}) {
    TrainOptions options = Options();
    options.packing = packing;
    options.batch_size = 4;
    const std::vector<double> whole = Losses(options);
    options.batch_size = 1;
    options.total_batch_size = 40;
    EXPECT_THAT(Losses(options), Pointwise(::testing::DoubleNear(2e-6), whole));
    options.total_batch_size = 0;
    options.batch_size = 2;
    options.nthread_per_process = 2;
    EXPECT_THAT(Losses(options), Pointwise(::testing::DoubleNear(2e-6), whole));
    options.batch_size = 1;
    options.total_batch_size = 40;
    EXPECT_THAT(Losses(options), Pointwise(::testing::DoubleNear(2e-6), whole));
  }
}

// Of some micro-batches and ranks nearly all targets count, of others nearly none.
TEST_F(FineTuning, ATargetWeighsTheSameWhereverItIs) {
  std::string lines;
  for (const std::string letter : {"a", "d", "g", "j", "m", "p", "s", "v"}) {
    const bool is_text = std::string("gjsv").find(letter) != std::string::npos;
    std::string text;
    for (int i = 0; i < 13; ++i)
      text += letter;
    const nlohmann::json record = is_text ? nlohmann::json{{"text", text}}
                                          : nlohmann::json{{"prompt", text}, {"completion", "z"}};
    lines += record.dump() + "\n";
  }
  WriteFileAtomically(run_ / "data.jsonl", lines);
  TrainOptions options = Options();
  options.shuffle = false;
  options.sequence_length = 14;
  options.num_iteration = 3;
  options.grad_clip = 0.0;
  options.batch_size = 8;
  options.save = run_ / "whole";
  RunTrain(options);
  const auto whole = ReadMetrics(options.metrics_file);
  options.total_batch_size = 8 * 14;
  const std::pair<int, int> splits[] = {{4, 1}, {1, 1}, {4, 2}, {2, 2}, {1, 2}, {1, 4}};
  for (const auto& [batch_size, ranks] : splits) {
    SCOPED_TRACE(::testing::Message() << batch_size << " samples, " << ranks << " ranks");
    options.batch_size = batch_size;
    options.nthread_per_process = ranks;
    options.save = run_ / "split";
    RunTrain(options);
    const auto split = ReadMetrics(options.metrics_file);
    ASSERT_EQ(split.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      for (const char* key : {"loss", "grad_norm"}) {
        const double expected = whole[i].at(key);
        EXPECT_NEAR(split[i].at(key), expected, 1e-6 * expected) << key << " of " << i + 1;
      }
    }
    ExpectCloseWeights(Checkpoint(run_ / "split", 3), Checkpoint(run_ / "whole", 3), 1e-6);
  }
}

TEST_F(FineTuning, ThreeAndThreeStepsEqualSix) {
  TrainOptions options = Options();
  options.packing = true;
  options.dropout = 0.2;
  options.optimizer = "adamw";
  options.learning_rate = 1e-3;
  options.save = run_ / "straight";
  RunTrain(options);
  const auto straight = ReadMetrics(options.metrics_file);
  options.save = run_ / "resumed";
  options.num_iteration = 3;
  RunTrain(options);
  options.num_iteration = 6;
  options.load = options.save;
  RunTrain(options);
  EXPECT_EQ(ReadMetrics(options.metrics_file), straight);
  ExpectSameCheckpoint(Checkpoint(run_ / "straight", 6), Checkpoint(run_ / "resumed", 6));
  // Other data is refused.
  options.num_iteration = 9;
  options.input_jsonl = {run_ / "val.jsonl"};
  options.tokenizer = run_ / "tokenizer.json";
  EXPECT_THAT(Refusal(options), HasSubstr("num_samples was 11, is 2"));
}

TEST_F(FineTuning, ValidatesAndWarnsOnce) {
  TrainOptions options = Options();
  options.input_val_jsonl = {run_ / "val.jsonl"};
  WriteFileAtomically(run_ / "data.jsonl", ReadFile(run_ / "data.jsonl") +
                                               "{\"text\": \"\"}\n{\"text\": \"" +
                                               std::string(20, 'q') + "\"}\n");
  const std::string output = RunTrain(options).output;
  EXPECT_THAT(output, HasSubstr("step    6 | val loss "));
  EXPECT_THAT(output, HasSubstr(" | 6 tokens"));
  EXPECT_THAT(output, HasSubstr("data.jsonl: of 13 records 1 skipped without text or completion, "
                                "1 cut at 11 tokens\n"));
  options.long_records = "drop";
  EXPECT_THAT(RunTrain(options).output, HasSubstr("1 left out for more than 11 tokens\n"));
  options.long_records = "error";
  EXPECT_THAT(Refusal(options), HasSubstr("data.jsonl:13: expected at most 11 tokens"));
}

TEST_F(FineTuning, ReportsBadInputByItsFlagOrLine) {
  TrainOptions options = Options();
  WriteFileAtomically(run_ / "bad.jsonl", "{\"text\": \"a\"}\n{\"prompt\": \"a\"}\n");
  options.input_jsonl = {run_ / "bad.jsonl"};
  EXPECT_EQ(Refusal(options), run_ / "bad.jsonl" + ":2: \"completion\": missing");
  options = Options();
  options.long_records = "shorten";
  EXPECT_EQ(Refusal(options), "long_records: expected truncate, drop or error, got shorten");
  options = Options();
  options.input_bin = {run_ / "train.bin"};
  EXPECT_EQ(Refusal(options), "input_jsonl: expected no input_bin beside it");
  options.input_jsonl.clear();
  options.packing = true;
  EXPECT_EQ(Refusal(options), "packing: expected JSON lines (input_jsonl), got token files");
  options = Options();
  options.tokenizer = "bytes";
  EXPECT_THAT(Refusal(options), HasSubstr("data.jsonl:1: token 122 is not below the model's "
                                          "vocabulary of 64; is this its tokenizer (bytes)?"));
}

TEST_F(FineTuning, EvaluatesThePerplexityOfWhatCounts) {
  const auto evaluate = [&](bool packing, std::int64_t batch_size) {
    EvaluateOptions options;
    options.model = run_ / "start";
    options.input_jsonl = {run_ / "data.jsonl"};
    options.tokenizer = run_ / "tokenizer.json";
    options.packing = packing;
    options.batch_size = batch_size;
    options.device = "cpu";
    std::FILE* out = std::tmpfile();
    EvaluateCommand(options, out);
    std::rewind(out);
    std::string text;
    for (int c; (c = std::fgetc(out)) != EOF;)
      text += static_cast<char>(c);
    std::fclose(out);
    return text;
  };
  const std::string padded = evaluate(false, 4);
  // Of texts all letters but the first, of completions all, and the ends: 1 to 7 letters.
  int targets = 0;
  for (int i = 0; i < 11; ++i)
    targets += 1 + i * 5 % 7 + (i % 3 == 0 ? 1 : 0);
  EXPECT_THAT(padded, HasSubstr(" | " + std::to_string(targets) + " tokens\n"));
  EXPECT_EQ(evaluate(true, 4), padded);
  EXPECT_EQ(evaluate(false, 11), padded);
  EXPECT_NEAR(std::stod(padded.substr(5)), std::log(kTinyVocabulary), 0.3);
}

}  // namespace
}  // namespace infini_train::trainer
