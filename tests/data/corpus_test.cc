#include "infini_train/data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "infini_train/core/file.h"
#include "infini_train/data/input_files.h"
#include "infini_train/data/token_dataset.h"
#include "tests/common/errors.h"
#include "tests/data/token_files.h"

namespace infini_train {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kEndOfText = 256;

class CorpusTest : public ::testing::Test {
 protected:
  CorpusTest() {
    options_.inputs = {in_.path()};
    options_.output_folder = out_ / "tokens";
    options_.validation_fraction = 0;
    options_.num_threads = 2;
  }

  void Write(const std::string& name, const std::string& text) {
    const fs::path path = in_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

  TokenizeResult Run() const { return TokenizeCorpus(*tokenizer_, options_); }

  std::string Refusal() const {
    return test::MessageOf([&] { Run(); });
  }

  // The text of token files, with | for the end of a text.
  static std::string TextOf(const std::vector<std::string>& files) {
    std::string text;
    for (const std::string& file : files) {
      const TokenShard shard(file);
      for (int64_t i = 0; i < shard.size(); ++i) {
        text += shard[i] == kEndOfText ? '|' : static_cast<char>(shard[i]);
      }
    }
    return text;
  }

  TemporaryFolder in_, out_;
  std::shared_ptr<const Tokenizer> tokenizer_ = LoadTokenizer("bytes");
  TokenizeOptions options_;
};

TEST_F(CorpusTest, PutsADelimiterBeforeEveryDocumentInOrder) {
  Write("b.txt", "second");
  Write("a/z.txt", "first");
  Write("c.txt", "");
  Write("d.txt", "third\n");
  Write(".hidden", "not this");
  Write(".git/config", "nor this");
  Write("picture.png", std::string("PNG\0rest", 8));
  const TokenizeResult result = Run();
  EXPECT_THAT(result.train_files, ElementsAre(options_.output_folder + "/train_000000.bin"));
  EXPECT_THAT(result.validation_files, IsEmpty());
  EXPECT_EQ(TextOf(result.train_files), "|first|second|third\n");
  EXPECT_EQ(result.num_files, 4);
  EXPECT_EQ(result.num_binary_files, 1);
  EXPECT_EQ(result.num_documents, 3);
  EXPECT_EQ(result.num_bytes, 17);
  EXPECT_EQ(result.num_train_tokens, 20);
  EXPECT_EQ(result.token_type, TokenType::kUint16);
  EXPECT_EQ(LoadTokenizer(options_.output_folder)->name(), "bytes");
}

TEST_F(CorpusTest, TakesFilesInTheOrderGiven) {
  Write("a.txt", "A");
  Write("b.txt", "B");
  options_.inputs = {in_ / "b.txt", in_ / "a.txt"};
  EXPECT_EQ(TextOf(Run().train_files), "|B|A");
}

TEST_F(CorpusTest, CutsFilesAtASeparator) {
  Write("a.txt", "one\n\ntwo\n\n\n\nthree");
  options_.document_separator = "\n\n";
  EXPECT_EQ(TextOf(Run().train_files), "|one\n\n|two\n\n|\n\n|three");
}

TEST_F(CorpusTest, ShardsHaveTheSizeAskedFor) {
  std::string text;
  for (int i = 0; i < 1000; ++i)
    text += "line " + std::to_string(i) + "\n";
  Write("a.txt", text);
  options_.tokens_per_shard = 1000;
  options_.token_type = TokenType::kUint32;
  const TokenizeResult result = Run();
  EXPECT_EQ(TextOf(result.train_files), "|" + text);
  for (size_t i = 0; i < result.train_files.size(); ++i) {
    const TokenShard shard(result.train_files[i]);
    EXPECT_EQ(shard.type(), TokenType::kUint32);
    if (i + 1 < result.train_files.size()) {
      EXPECT_EQ(shard.size(), 1000);
    } else {
      EXPECT_LE(shard.size(), 1000);
    }
  }
  EXPECT_EQ(TokenDataset({options_.output_folder + "/train_*.bin"}).num_tokens(),
            result.num_train_tokens);
}

TEST_F(CorpusTest, KeepsAboutTheFractionForValidation) {
  std::map<std::string, std::string> documents;
  for (int i = 0; i < 200; ++i) {
    const std::string name = "f" + std::to_string(1000 + i);
    documents[name] = "<" + name + std::string(static_cast<size_t>(50 + 7 * i % 100), '.') + ">";
    Write(name, documents[name]);
  }
  options_.validation_fraction = 0.1;
  const TokenizeResult result = Run();
  const std::string train = TextOf(result.train_files);
  const std::string validation = TextOf(result.validation_files);
  int64_t in_validation = 0;
  for (const auto& [name, text] : documents) {
    EXPECT_NE(train.find("|" + text) != train.npos, validation.find("|" + text) != train.npos);
    in_validation += validation.find("|" + text) != train.npos;
  }
  EXPECT_EQ(in_validation, result.num_validation_documents);
  EXPECT_NEAR(static_cast<double>(result.num_validation_tokens) /
                  static_cast<double>(result.num_validation_tokens + result.num_train_tokens),
              0.1, 0.01);

  options_.overwrite = true;
  EXPECT_EQ(TextOf(Run().validation_files), validation);
  options_.seed = 1;
  EXPECT_NE(TextOf(Run().validation_files), validation);
}

TEST_F(CorpusTest, ASingleDocumentGivesItsLastLines) {
  Write("a.txt", "0123456789\n0123456789\n0123456789\nlast line\n");
  options_.validation_fraction = 0.25;
  TokenizeResult result = Run();
  EXPECT_EQ(TextOf(result.train_files), "|0123456789\n0123456789\n0123456789\n");
  EXPECT_EQ(TextOf(result.validation_files), "|last line\n");
  options_.overwrite = true;
  Write("a.txt", "no line end \u00e9\u00e9");
  result = Run();
  EXPECT_EQ(TextOf(result.train_files), "|no line end ");
  EXPECT_EQ(TextOf(result.validation_files), "|\u00e9\u00e9");
}

TEST_F(CorpusTest, AFewDocumentsStillGiveOneForValidation) {
  Write("a.txt", std::string(100, 'a'));
  Write("b.txt", std::string(50, 'b'));
  options_.validation_fraction = 0.01;
  const TokenizeResult result = Run();
  EXPECT_EQ(TextOf(result.validation_files), "|" + std::string(50, 'b'));
  EXPECT_EQ(TextOf(result.train_files), "|" + std::string(100, 'a'));
}

// Also that a large document is cut where its ids do not change.
TEST_F(CorpusTest, TheNumberOfThreadsChangesNothing) {
  tokenizer_ = LoadTokenizer(std::string(GOLDEN_FOLDER) + "/gpt2.json");
  std::string text;
  for (uint64_t i = 0, state = 1; text.size() < 7'000'000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    static const char* const kWords[] = {"the",   "it's", " 12", "  ", "\u4f60\u597d", "\n", ".\n",
                                         "x;\ny", "\n\n", " of", "\t", "caf\u00e9"};
    text += kWords[(state >> 33) % 12];
  }
  Write("large.txt", text);
  for (int i = 0; i < 50; ++i)
    Write("small" + std::to_string(i), text.substr(i * 1000, 900));
  options_.validation_fraction = 0.05;
  options_.tokens_per_shard = 1'000'000;
  std::vector<std::string> contents[2];
  for (const int num_threads : {1, 100'000}) {
    options_.num_threads = num_threads;
    const TokenizeResult result = Run();
    for (const auto* files : {&result.train_files, &result.validation_files}) {
      for (const std::string& file : *files)
        contents[num_threads > 1 ? 1 : 0].push_back(ReadFile(file));
    }
    options_.overwrite = true;
  }
  EXPECT_EQ(contents[0], contents[1]);

  std::vector<int32_t> whole = {*tokenizer_->document_delimiter()};
  tokenizer_->EncodeTo(text, whole);
  std::vector<int32_t> stored;
  const TokenDataset dataset({options_.output_folder + "/train_*.bin"});
  for (const TokenShard& shard : dataset.shards()) {
    for (int64_t i = 0; i < shard.size() && stored.size() < whole.size(); ++i) {
      stored.push_back(static_cast<int32_t>(shard[i]));
    }
  }
  EXPECT_TRUE(stored == whole);
}

TEST_F(CorpusTest, ReportsProgressUpToTheEnd) {
  Write("a.txt", std::string(5'000'000, 'x'));
  std::vector<TokenizeProgress> reports;
  options_.progress = [&](const TokenizeProgress& progress) { reports.push_back(progress); };
  Run();
  ASSERT_GE(reports.size(), 3u);
  for (size_t i = 1; i < reports.size(); ++i)
    EXPECT_GT(reports[i].bytes, reports[i - 1].bytes);
  EXPECT_EQ(reports.back().bytes, 5'000'000);
  EXPECT_EQ(reports.back().total_bytes, 5'000'000);
  EXPECT_EQ(reports.back().tokens, 5'000'001);
}

TEST_F(CorpusTest, WritesOverTokenFilesOnlyIfAsked) {
  Write("a.txt", "0123456789");
  options_.tokens_per_shard = 3;
  EXPECT_EQ(Run().train_files.size(), 4u);
  Write("a.txt", "new");
  EXPECT_THAT(Refusal(), HasSubstr(options_.output_folder + ": expected no token files, found 4"));
  options_.overwrite = true;
  const TokenizeResult result = Run();
  EXPECT_EQ(result.train_files.size(), 2u);
  // Nothing of the first run is left for a pattern to match.
  EXPECT_EQ(TextOf(ExpandFiles({options_.output_folder + "/*.bin"}, "token files")), "|new");
}

TEST_F(CorpusTest, DoesNotReadItsOwnOutput) {
  Write("a.txt", "text");
  options_.output_folder = in_ / "tokens";
  Run();
  options_.overwrite = true;
  EXPECT_EQ(TextOf(Run().train_files), "|text");
}

TEST_F(CorpusTest, RefusesATokenizerWithoutAnEndOfText) {
  Write("tokenizer.json", R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})");
  tokenizer_ = LoadTokenizer(in_ / "tokenizer.json");
  EXPECT_THAT(Refusal(), HasSubstr("tokenizer.json: expected a token that ends a text"));
  Write("tokenizer_config.json", R"({"eos_token":"b"})");
  tokenizer_ = LoadTokenizer(in_ / "tokenizer.json");
  EXPECT_EQ(tokenizer_->document_delimiter(), 1);
}

TEST_F(CorpusTest, RefusesBeforeWriting) {
  EXPECT_THAT(Refusal(), HasSubstr("expected text, found 0 files without any (0 of them binary)"));
  Write("binary", std::string(10, '\0'));
  EXPECT_THAT(Refusal(), HasSubstr("expected text, found 1 files without any (1 of them binary)"));
  Write("a.txt", "text");
  options_.inputs = {in_ / "missing.txt"};
  EXPECT_THAT(Refusal(), HasSubstr("missing.txt: cannot open: No such file"));
  options_.inputs = {};
  EXPECT_THAT(Refusal(), HasSubstr("expected files or folders"));
  options_.inputs = {in_.path()};
  options_.validation_fraction = 1;
  EXPECT_THAT(Refusal(), HasSubstr("expected a validation fraction"));
  options_.validation_fraction = 0;
  options_.tokens_per_shard = 0;
  EXPECT_THAT(Refusal(), HasSubstr("tokens for each shard, found 0"));
  options_.tokens_per_shard = 100;
  options_.document_delimiter = 257;
  EXPECT_THAT(Refusal(), HasSubstr("expected a document delimiter from 0 to 256, found 257"));
  options_.document_delimiter.reset();
  EXPECT_FALSE(fs::exists(options_.output_folder));
  Write("in the way", "text");
  options_.output_folder = in_ / "in the way";
  EXPECT_THAT(Refusal(), HasSubstr("in the way: cannot create the folder"));
}

}  // namespace
}  // namespace infini_train
