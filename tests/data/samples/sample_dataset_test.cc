#include "infini_train/data/samples/sample_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "tests/common/errors.h"
#include "tests/data/token_files.h"

namespace infini_train {
namespace {

using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Ids(const Sample& sample) {
  return {sample.tokens.begin(), sample.tokens.end()};
}

// With the tokenizer of bytes, whose end of text is 256.
class SampleDatasetTest : public ::testing::Test {
 protected:
  SampleDataset Load(const std::string& lines, const SampleOptions& options = {}) const {
    WriteFileAtomically(path_, lines);
    return SampleDataset(*tokenizer_, {path_}, options);
  }

  std::string Refusal(const std::string& lines, const SampleOptions& options = {}) const {
    return test::MessageOf([&] { Load(lines, options); });
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "data.jsonl";
  std::shared_ptr<const Tokenizer> tokenizer_ = LoadTokenizer("bytes");
};

TEST_F(SampleDatasetTest, EndsSamplesAndCountsCompletionsAlone) {
  const SampleDataset samples = Load(
      "\xEF\xBB\xBF{\"text\": \"ab\"}\r\n"
      "\n"
      "{\"prompt\": \"q:\", \"completion\": \"a\"}\n"
      "{\"prompt\": \"\", \"completion\": \"a\"}");
  ASSERT_EQ(samples.size(), 3);
  EXPECT_THAT(Ids(samples[0]), ElementsAre('a', 'b', 256));
  EXPECT_EQ(samples[0].first_target, 1);
  EXPECT_EQ(samples[0].num_inputs(), 2);
  EXPECT_EQ(samples[0].num_targets(), 2);
  EXPECT_THAT(Ids(samples[1]), ElementsAre('q', ':', 'a', 256));
  EXPECT_EQ(samples[1].first_target, 2);
  EXPECT_EQ(samples[1].num_targets(), 2);
  // Nothing comes before the first token.
  EXPECT_THAT(Ids(samples[2]), ElementsAre('a', 256));
  EXPECT_EQ(samples[2].first_target, 1);
  EXPECT_EQ(samples.counts().records, 3);
  EXPECT_EQ(samples.counts().tokens, 9);
  EXPECT_EQ(samples.counts().targets, 5);
}

TEST_F(SampleDatasetTest, SkipsAndCutsAndCounts) {
  const std::string lines =
      "{\"text\": \"\"}\n"
      "{\"prompt\": \"p\", \"completion\": \"\"}\n"
      "{\"text\": \"abcde\"}\n"
      "{\"prompt\": \"abc\", \"completion\": \"de\"}\n"
      "{\"prompt\": \"abcde\", \"completion\": \"f\"}\n"
      "{\"text\": \"abc\"}\n";
  const SampleDataset cut = Load(lines, {.sequence_length = 3});
  ASSERT_EQ(cut.size(), 3);
  EXPECT_THAT(Ids(cut[0]), ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(Ids(cut[1]), ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_EQ(cut[1].first_target, 3);
  EXPECT_THAT(Ids(cut[2]), ElementsAre('a', 'b', 'c', 256));
  EXPECT_EQ(cut.counts().empty, 2);
  EXPECT_EQ(cut.counts().truncated, 2);
  EXPECT_EQ(cut.counts().too_long, 1) << "nothing of the completion is left";

  const SampleDataset left =
      Load(lines, {.sequence_length = 3, .long_records = LongRecords::kDrop});
  ASSERT_EQ(left.size(), 1);
  EXPECT_EQ(left.counts().too_long, 3);
  EXPECT_EQ(left.counts().truncated, 0);

  EXPECT_EQ(Refusal(lines, {.sequence_length = 3, .long_records = LongRecords::kError}),
            path_ +
                ":3: expected at most 4 tokens (sequence_length and one more), found 6; "
                "--long_records truncate cuts such records, drop leaves them out");
}

TEST_F(SampleDatasetTest, NamesTheLine) {
  EXPECT_EQ(Refusal("{\"text\": \"a\"}\n\n{\"texts\": \"b\"}\n"),
            path_ + ":3: expected \"text\", or \"prompt\" and \"completion\", found \"texts\"");
  EXPECT_EQ(Refusal("{\"text\": \"a\"}\n{\"text\": \"b\"}\n", {.vocab_size = 98}),
            path_ +
                ":1: token 256 is not below the model's vocabulary of 98; is this its tokenizer "
                "(bytes)?");
  EXPECT_EQ(Refusal("\n{\"text\": \"\"}\n"),
            path_ +
                ": expected a record with text to train on, found none in 1 records (1 without "
                "text or completion, 0 too long)");
  EXPECT_THAT(Refusal(""), HasSubstr("found none in 0 records"));
}

// Files of many parts: the first mistake is the one that is named, whichever thread is faster.
TEST_F(SampleDatasetTest, KeepsTheOrderOfManyLines) {
  std::string lines;
  for (int i = 0; i < 40000; ++i)
    lines += "{\"prompt\": \"number\", \"completion\": \"" + std::to_string(i) + "\"}\n";
  const SampleDataset samples = Load(lines, {.num_threads = 4});
  ASSERT_EQ(samples.size(), 40000);
  for (const int64_t i : {0, 17, 20000, 39999}) {
    std::string text = tokenizer_->Decode(samples[i].tokens, /*skip_special_tokens=*/true);
    EXPECT_EQ(text, "number" + std::to_string(i));
  }
  EXPECT_EQ(Load(lines, {.num_threads = 1}).fingerprint(), samples.fingerprint());
  EXPECT_NE(Load(lines + "{\"text\": \"x\"}").fingerprint(), samples.fingerprint());
  std::string broken = lines;
  broken[broken.find("number\", \"completion\": \"30000\"") - 5] = 'X';
  broken.replace(broken.find("\"10000\""), 7, "123456 ");
  EXPECT_EQ(Refusal(broken, {.num_threads = 4}),
            path_ + ":10001: \"completion\": expected a string, found number");
}

TEST_F(SampleDatasetTest, WritesWhatTheTokenizerPutsAroundTexts) {
  const nlohmann::json file = {
      {"model",
       {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", nlohmann::json::array()}}},
      {"added_tokens",
       {{{"id", 2}, {"content", "<s>"}, {"special", true}},
        {{"id", 3}, {"content", "</s>"}, {"special", true}}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
        {"special_tokens", {{"<s>", {{"ids", {2}}}}}}}}};
  WriteFileAtomically(folder_ / "tokenizer.json", file.dump());
  tokenizer_ = LoadTokenizer(folder_.path());
  const SampleDataset samples = Load(
      "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
      "{\"text\": \"a</s>\"}\n"
      "{\"prompt\": \"\", \"completion\": \"b\"}");
  EXPECT_THAT(Ids(samples[0]), ElementsAre(2, 0, 1, 3));
  EXPECT_EQ(samples[0].first_target, 2);
  EXPECT_THAT(Ids(samples[1]), ElementsAre(2, 0, 3)) << "the text has its end";
  EXPECT_EQ(samples[1].first_target, 1);
  EXPECT_EQ(samples[2].first_target, 1);
  EXPECT_EQ(samples[2].num_targets(), 2);
}

TEST(LongRecords, AreOneOfThree) {
  EXPECT_EQ(ParseLongRecords("truncate"), LongRecords::kTruncate);
  EXPECT_EQ(ParseLongRecords("drop"), LongRecords::kDrop);
  EXPECT_EQ(ParseLongRecords("error"), LongRecords::kError);
  EXPECT_THROW(ParseLongRecords("cut"), Error);
}

}  // namespace
}  // namespace infini_train
