#include "infini_train/data/unicode/unicode.h"

#include <gtest/gtest.h>

#include <string>

namespace infini_train::unicode {
namespace {

std::string Nfc(const std::string& text) {
  std::string out = "unchanged";
  if (!NormalizeNfc(text, out)) {
    EXPECT_EQ(out, "unchanged");
    return text;
  }
  EXPECT_NE(out, text);
  std::string again;
  EXPECT_FALSE(NormalizeNfc(out, again)) << "normalizing twice changes the text";
  return out;
}

TEST(Utf8, RoundTripsEveryCodePoint) {
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    Append(text, c);
    const Character character = Decode(text.data(), text.data() + text.size());
    ASSERT_EQ(character.code_point, c);
    ASSERT_EQ(character.size, text.size());
    for (size_t size = 1; size < text.size(); ++size) {
      ASSERT_EQ(Decode(text.data(), text.data() + size).code_point, kInvalid);
    }
  }
}

TEST(Utf8, RefusesWhatIsNotWellFormed) {
  for (const std::string text :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x28\xA1", "\xF0\x9F\x98\x28"}) {
    EXPECT_EQ(WellFormedPrefix(text), 0u);
    EXPECT_EQ(Decode(text.data(), text.data() + text.size()).size, 1u);
  }
  EXPECT_EQ(WellFormedPrefix("a\u00e9\xFFz"), 3u);
}

TEST(CharClass, KnowsLettersNumbersAndSpaces) {
  for (const uint32_t c : {0x41u, 0xAAu, 0xE9u, 0x3B1u, 0x4E00u, 0xAC00u, 0x1D400u, 0x2A6D6u}) {
    EXPECT_EQ(ClassOf(c), CharClass::kLetter) << c;
  }
  for (const uint32_t c : {0x30u, 0xB2u, 0xBDu, 0x660u, 0x2160u, 0x1D7CEu}) {
    EXPECT_EQ(ClassOf(c), CharClass::kNumber) << c;
  }
  for (const uint32_t c : {0x9u, 0xDu, 0x20u, 0x85u, 0xA0u, 0x1680u, 0x2028u, 0x3000u}) {
    EXPECT_EQ(ClassOf(c), CharClass::kSpace) << c;
  }
  for (const uint32_t c :
       {0x0u, 0x1Cu, 0x2Du, 0x300u, 0x180Eu, 0x200Bu, 0xFFFDu, 0x10FFFFu, kInvalid}) {
    EXPECT_EQ(ClassOf(c), CharClass::kOther) << c;
  }
}

TEST(Nfc, ComposesAndReorders) {
  EXPECT_EQ(Nfc(""), "");
  EXPECT_EQ(Nfc("plain text"), "plain text");
  EXPECT_EQ(Nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(Nfc("xe\u0301x"), "x\u00e9x");
  EXPECT_EQ(Nfc("\u212b"), "\u00c5");
  EXPECT_EQ(Nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(Nfc("e\u0323\u0301"), "\u1eb9\u0301");
  EXPECT_EQ(Nfc("a\u0301\u0327"), "\u00e1\u0327");
  // A mark of the same class blocks.
  EXPECT_EQ(Nfc("a\u0305\u0301"), "a\u0305\u0301");
  // Composition exclusions and singletons.
  EXPECT_EQ(Nfc("\u0958"), "\u0915\u093c");
  EXPECT_EQ(Nfc("\u2126"), "\u03a9");
  EXPECT_EQ(Nfc("\u0344"), "\u0308\u0301");
  // Marks without a base, and starters that compose.
  EXPECT_EQ(Nfc("\u0301a"), "\u0301a");
  EXPECT_EQ(Nfc("\u09c7\u09be"), "\u09cb");
}

TEST(Nfc, ComposesHangul) {
  EXPECT_EQ(Nfc("\u1100\u1161"), "\uac00");
  EXPECT_EQ(Nfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(Nfc("\uac00\u11a8"), "\uac01");
  EXPECT_EQ(Nfc("\uac01\u11a8"), "\uac01\u11a8");
  EXPECT_EQ(Nfc("\u1161\u11a8"), "\u1161\u11a8");
}

TEST(Nfc, KeepsBytesThatAreNotUtf8) {
  EXPECT_EQ(Nfc("\xff\u0301\xc3"), "\xff\u0301\xc3");
  EXPECT_EQ(Nfc("\xff"
                "e\u0301\xe2\x82"),
            "\xff\u00e9\xe2\x82");
}

TEST(Nfc, TakesLongRunsOfMarks) {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i)
    text += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::string normalized = Nfc(text);
  EXPECT_EQ(normalized.substr(0, 5), "\u1ea1\u0323");
}

}  // namespace
}  // namespace infini_train::unicode
