// Agreement with Hugging Face's `tokenizers`, whose ids tests/data/golden/generate.py recorded.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infini_train/data/tokenizer.h"
#include "infini_train/data/unicode/unicode.h"

namespace infini_train {
namespace {

class TokenizerGolden : public ::testing::TestWithParam<const char*> {
 protected:
  static nlohmann::json Samples() {
    std::ifstream file(std::string(GOLDEN_FOLDER) + "/samples.json");
    return nlohmann::json::parse(file);
  }
};

TEST_P(TokenizerGolden, GivesTheSameIds) {
  const std::string family = GetParam();
  const auto tokenizer = LoadTokenizer(std::string(GOLDEN_FOLDER) + "/" + family + ".json");
  const nlohmann::json samples = Samples();
  const auto texts = samples["texts"].get<std::vector<std::string>>();
  const auto ids = samples["ids"][family].get<std::vector<std::vector<int32_t>>>();
  ASSERT_GT(texts.size(), 50u);
  ASSERT_GT(ids.size(), 50u);
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(tokenizer->Encode(texts[i], /*add_special_tokens=*/true), ids[i])
        << "text " << i << ": " << texts[i];
  }
}

TEST_P(TokenizerGolden, GivesTheTextBack) {
  const std::string family = GetParam();
  const auto tokenizer = LoadTokenizer(std::string(GOLDEN_FOLDER) + "/" + family + ".json");
  const bool marks_spaces = family == "mixtral" || family == "mistral";
  for (const auto& text : Samples()["texts"].get<std::vector<std::string>>()) {
    // These two take white space along.
    if (text.find("[LEFT]") != text.npos || text.find("[RIGHT]") != text.npos) continue;
    // Sections get a space, that of the text is one with the mark, and a space is a mark.
    if (marks_spaces && (text.find("<s>") != text.npos || text.starts_with(' ') ||
                         text.find("\u2581") != text.npos)) {
      continue;
    }
    std::string expected = text;
    if (family == "qwen") unicode::NormalizeNfc(text, expected);
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), expected);
  }
}

TEST(TokenizerTemplate, PutsSpecialTokensAroundTheTextOnRequest) {
  const auto llama = LoadTokenizer(std::string(GOLDEN_FOLDER) + "/llama3.json");
  std::vector<int32_t> ids = llama->Encode("a b");
  ids.insert(ids.begin(), 1);
  EXPECT_EQ(llama->Encode("a b", /*add_special_tokens=*/true), ids);
  EXPECT_EQ(llama->document_delimiter(), 1);
  const auto gpt2 = LoadTokenizer(std::string(GOLDEN_FOLDER) + "/gpt2.json");
  EXPECT_EQ(gpt2->Encode("a b", /*add_special_tokens=*/true), gpt2->Encode("a b"));
  EXPECT_EQ(gpt2->document_delimiter(), 0);
}

INSTANTIATE_TEST_SUITE_P(Families, TokenizerGolden,
                         ::testing::Values("gpt2", "llama3", "qwen", "mixtral", "mistral"),
                         [](const auto& info) { return std::string(info.param); });

// In these files each stretch of text is encoded with a space in front, which only the first loses.
TEST(SentencePieceGolden, DecodesAndStreamsAsTheOther) {
  std::ifstream file(std::string(GOLDEN_FOLDER) + "/samples.json");
  const nlohmann::json samples = nlohmann::json::parse(file);
  const auto texts = samples["texts"].get<std::vector<std::string>>();
  for (const std::string family : {"mixtral", "mistral"}) {
    SCOPED_TRACE(family);
    const auto tokenizer = LoadTokenizer(std::string(GOLDEN_FOLDER) + "/" + family + ".json");
    const auto ids = samples["ids"][family].get<std::vector<std::vector<int32_t>>>();
    const nlohmann::json& decoded = samples["decoded"][family];
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto other = decoded.find(std::to_string(i));
      const std::string expected = other == decoded.end() ? texts[i] : other->get<std::string>();
      const std::vector<int32_t> text_ids(ids[i].begin() + 1, ids[i].end());
      EXPECT_EQ(tokenizer->Decode(text_ids), expected);
      EXPECT_EQ(tokenizer->Decode(ids[i], /*skip_special_tokens=*/true),
                tokenizer->Decode(text_ids, /*skip_special_tokens=*/true));
      StreamingDecoder decoder(tokenizer, /*skip_special_tokens=*/false);
      std::string streamed;
      for (const int32_t id : text_ids) {
        const std::string part = decoder.Push(id);
        EXPECT_EQ(unicode::WellFormedPrefix(part), part.size()) << "half a character";
        streamed += part;
      }
      EXPECT_EQ(streamed + decoder.Finish(), expected);
    }
    EXPECT_EQ(tokenizer->Find("</s>"), 2);
    EXPECT_EQ(tokenizer->eos_ids(), std::vector<int32_t>{2});
    EXPECT_EQ(tokenizer->document_delimiter(), 1);
  }
}

}  // namespace
}  // namespace infini_train
