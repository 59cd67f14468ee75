#include "infini_train/data/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/data/tokenizer/known_patterns.h"
#include "infini_train/data/unicode/unicode.h"

namespace infini_train {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::json;
using Pieces = std::vector<std::string>;

class Collector : public PieceSink {
 public:
  void Take(std::string_view piece) override { pieces.emplace_back(piece); }
  Pieces pieces;
};

Pieces SplitWith(const PreTokenizer& splitter, std::string_view text) {
  Collector collector;
  splitter.Split(text, TextPlace::kStart, collector);
  return std::move(collector.pieces);
}

Pieces SplitWith(const Json& json, std::string_view text) {
  const std::string file = "tokenizer.json";
  return SplitWith(*LoadPreTokenizer(JsonNode(json, file)).splitter, text);
}

// Text of characters that the patterns treat differently, of every plane and script that Unicode 14
// (the version of Debian 12's PCRE2) has letters, numbers and spaces in.
std::string RandomText(uint64_t seed, size_t length) {
  static const std::vector<std::vector<std::pair<uint32_t, uint32_t>>> kKinds = {
      {{'a', 'z'}, {'A', 'Z'}},
      {{0xC0, 0x24F},
       {0x370, 0x373},
       {0x400, 0x52F},
       {0x5D0, 0x5EA},
       {0x620, 0x64A},
       {0x904, 0x939}},
      {{0x4E00, 0x9FFF},
       {0xAC00, 0xD7A3},
       {0x1D400, 0x1D433},
       {0x20000, 0x2A6DF},
       {0x10330, 0x10340}},
      {{'0', '9'},
       {0x660, 0x669},
       {0xB2, 0xB3},
       {0xBC, 0xBE},
       {0x2160, 0x2188},
       {0x1D7CE, 0x1D7FF}},
      {{'!', '/'}, {':', '@'}, {'[', '`'}, {0xA1, 0xA9}, {0x2010, 0x2027}, {0x1F600, 0x1F64F}},
      {{0x300, 0x36F}, {0x93E, 0x94D}, {0x200B, 0x200F}, {0xFE00, 0xFE0F}, {0x180E, 0x180E}},
      {{' ', ' '}},
      {{' ', ' '},
       {'\t', '\r'},
       {0x85, 0x85},
       {0xA0, 0xA0},
       {0x2000, 0x200A},
       {0x2028, 0x2029},
       {0x3000, 0x3000}},
      {{'\n', '\n'}, {'\r', '\r'}},
      {{'\'', '\''}},
      {{'s', 't'},
       {'r', 'r'},
       {'e', 'e'},
       {'v', 'v'},
       {'m', 'm'},
       {'l', 'l'},
       {'d', 'd'},
       {'S', 'S'},
       {'L', 'L'},
       {0x17F, 0x17F}},
      {{0, 8}, {0x7F, 0x84}, {0xE000, 0xE010}, {0xFFFD, 0xFFFD}, {0x10FFFF, 0x10FFFF}}};
  uint64_t state = seed;
  const auto below = [&state](uint64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % limit;
  };
  std::string text;
  const std::vector<std::pair<uint32_t, uint32_t>>* kind = &kKinds[0];
  for (size_t i = 0; i < length; ++i) {
    if (below(3) == 0) kind = &kKinds[below(kKinds.size())];
    const auto [first, last] = (*kind)[below(kind->size())];
    unicode::Append(text, first + static_cast<uint32_t>(below(last - first + 1)));
  }
  return text;
}

class KnownPattern : public ::testing::TestWithParam<std::string_view> {};

TEST_P(KnownPattern, SplitsAsTheRegularExpressionDoes) {
  const auto known = MakeKnownSplitter(GetParam());
  ASSERT_NE(known, nullptr);
  const auto regex = MakeRegexSplitter(std::string(GetParam()));
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const std::string text = RandomText(seed, 1 + seed % 40);
    ASSERT_EQ(SplitWith(*known, text), SplitWith(*regex, text)) << "seed " << seed << ": " << text;
  }
  const std::string text = RandomText(99, 300000);
  ASSERT_GT(text.size(), 500000u);
  EXPECT_EQ(SplitWith(*known, text), SplitWith(*regex, text));
}

TEST_P(KnownPattern, LosesNothing) {
  const auto known = MakeKnownSplitter(GetParam());
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::string text = RandomText(seed, 100);
    for (size_t i = 0; i < text.size(); i += 7)
      text[i] = static_cast<char>(text[i] * 31 + seed);
    std::string joined;
    for (const std::string& piece : SplitWith(*known, text)) {
      EXPECT_FALSE(piece.empty());
      joined += piece;
    }
    EXPECT_EQ(joined, text);
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::string_view>& info) {
  static const char* const kNames[] = {"Gpt2", "Llama3", "Qwen"};
  return kNames[info.index];
}

INSTANTIATE_TEST_SUITE_P(Patterns, KnownPattern,
                         ::testing::Values(kGpt2Pattern, kLlama3Pattern, kQwenPattern), NameOf);

TEST(PreTokenizer, SplitsLikeTheFamilies) {
  const auto gpt2 = MakeKnownSplitter(kGpt2Pattern);
  EXPECT_THAT(SplitWith(*gpt2, "Hello  world's 123!\n\n x"),
              ElementsAre("Hello", " ", " world", "'s", " 123", "!", "\n\n", " x"));
  const auto llama = MakeKnownSplitter(kLlama3Pattern);
  EXPECT_THAT(SplitWith(*llama, "(Hello) 12345 I'LL!\n\n x"),
              ElementsAre("(Hello", ")", " ", "123", "45", " I", "'LL", "!\n\n", " x"));
  const auto qwen = MakeKnownSplitter(kQwenPattern);
  EXPECT_THAT(SplitWith(*qwen, "a 123"), ElementsAre("a", " ", "1", "2", "3"));
}

Json Split(const Json& pattern, const char* behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
}

TEST(PreTokenizer, SplitsByEveryBehavior) {
  for (const Json& dash : {Json{{"String", "-"}}, Json{{"Regex", "-"}}}) {
    const auto split = [&](const char* behavior, bool invert = false) {
      return SplitWith(Split(dash, behavior, invert), "the-final--countdown");
    };
    EXPECT_THAT(split("Isolated"), ElementsAre("the", "-", "final", "-", "-", "countdown"));
    EXPECT_THAT(split("Removed"), ElementsAre("the", "final", "countdown"));
    EXPECT_THAT(split("MergedWithPrevious"), ElementsAre("the-", "final-", "-", "countdown"));
    EXPECT_THAT(split("MergedWithNext"), ElementsAre("the", "-final", "-", "-countdown"));
    EXPECT_THAT(split("Contiguous"), ElementsAre("the", "-", "final", "--", "countdown"));
    EXPECT_THAT(split("Removed", true), ElementsAre("-", "-", "-"));
  }
  EXPECT_THAT(SplitWith(Split({{"Regex", "x*"}}, "Isolated"), "axxb"), ElementsAre("a", "xx", "b"));
}

TEST(PreTokenizer, RunsASequence) {
  const Json json = {{"type", "Sequence"},
                     {"pretokenizers",
                      {Split({{"Regex", "\\d"}}, "Isolated"),
                       Split({{"String", " "}}, "Removed"),
                       {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}}}}};
  EXPECT_THAT(SplitWith(json, "ab 12 c"), ElementsAre(" ab", " 1", " 2", " c"));
}

}  // namespace
}  // namespace infini_train
