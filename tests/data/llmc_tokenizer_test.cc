#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/data/tokenizer.h"

namespace infini_train {
namespace {

// Ids of the golden GPT-2 tokenizer that are bytes and merges; added tokens lie around them.
constexpr int32_t kFirst = 2;
constexpr int32_t kEnd = 600;
constexpr char kEndOfText[] = "<|endoftext|>";

class LlmcTokenizer : public ::testing::Test {
 protected:
  LlmcTokenizer()
      : golden_(LoadTokenizer(std::string(GOLDEN_FOLDER) + "/gpt2.json")),
        path_(::testing::TempDir() + "llmc_tokenizer.bin") {}

  std::string FileOf(std::vector<int32_t> header) const {
    header.resize(256);
    std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
    const auto append = [&](std::string_view token) {
      bytes += static_cast<char>(token.size());
      bytes += token;
    };
    for (int32_t id = kFirst; id < kEnd; ++id)
      append(golden_->TokenBytes(id));
    append(kEndOfText);
    return bytes;
  }

  void Write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
  }

  static constexpr int32_t kSize = kEnd - kFirst + 1;
  std::shared_ptr<const Tokenizer> golden_;
  std::string path_;
};

TEST_F(LlmcTokenizer, RecoversTheMergesFromTheTokens) {
  Write(FileOf({20240328, 2, kSize, kSize - 1}));
  const auto tokenizer = LoadTokenizer(path_);
  EXPECT_EQ(tokenizer->vocab_size(), kSize);
  EXPECT_EQ(tokenizer->document_delimiter(), kSize - 1);
  std::ifstream file(std::string(GOLDEN_FOLDER) + "/samples.json");
  int compared = 0;
  for (const auto& text : nlohmann::json::parse(file)["texts"].get<std::vector<std::string>>()) {
    std::vector<int32_t> expected = golden_->Encode(text);
    const auto is_plain = [](int32_t id) { return id >= kFirst && id < kEnd; };
    if (!std::all_of(expected.begin(), expected.end(), is_plain)) continue;
    for (int32_t& id : expected)
      id -= kFirst;
    EXPECT_EQ(tokenizer->Encode(text), expected) << text;
    EXPECT_EQ(tokenizer->Decode(expected), text);
    ++compared;
  }
  EXPECT_GT(compared, 20);
  EXPECT_EQ(tokenizer->Encode(kEndOfText), std::vector<int32_t>{kSize - 1});
}

TEST_F(LlmcTokenizer, RefusesDamagedFiles) {
  const std::string good = FileOf({20240328, 2, kSize, kSize - 1});
  const std::pair<std::string, const char*> bad[] = {
      {FileOf({20240328, 3, kSize, kSize - 1}), "expected version 1 or 2, found 3"},
      {FileOf({20240328, 2, -1, 0}), "found -1"},
      {FileOf({20240328, 2, kSize, kSize}), "end-of-text id"},
      {FileOf({20240328, 2, kSize + 1, kSize - 1}), "is empty or cut off"},
      {FileOf({20240328, 2, kSize - 1, kSize - 2}), "bytes after the last token"},
      {good.substr(0, 1000), "shorter than a header"},
      {good.substr(0, good.size() - 1), "is empty or cut off"}};
  for (const auto& [bytes, message] : bad) {
    Write(bytes);
    try {
      LoadTokenizer(path_);
      ADD_FAILURE() << "accepted: " << message;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace infini_train
