#include "infini_train/core/regex/regex.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "infini_train/core/error.h"
#include "tests/common/errors.h"

namespace infini_train {
namespace {

TEST(Regex, ReadsClassesAsOnigurumaDoes) {
  const auto matches = [](const char* pattern, const std::string& text) {
    std::size_t begin = 0, end = 0;
    return Regex(pattern, "").Find(text, 0, begin, end) && begin == 0 && end == text.size();
  };
  EXPECT_TRUE(matches("\\s", "\u3000"));
  EXPECT_TRUE(matches("[^\\S]", "\u0085"));
  EXPECT_FALSE(matches("\\s", "\u180e"));
  EXPECT_TRUE(matches("\\w", "\u0301"));
  EXPECT_TRUE(matches("[\\w-]+", "a-\u0301"));
  EXPECT_FALSE(matches("\\w", "\u00b2"));
  EXPECT_TRUE(matches("a$\\nb", "a\nb"));
  EXPECT_FALSE(matches("a.b", "a\nb"));
}

TEST(Regex, RefusesWhatWouldMeanSomethingElse) {
  for (const char* pattern :
       {"\\h", "\\bword", "[a&&b]", "[a[bc]]", "[\\W]", "(", "\\C", "a**b("}) {
    EXPECT_THROW(Regex(pattern, "here"), Error) << pattern;
  }
}

TEST(Regex, BoundsBacktracking) {
  const Regex catastrophic("(?:a|aa)+[bc]", "tokenizer.json: pattern");
  const std::string text(5000, 'a');
  std::size_t begin = 0, end = 0;
  EXPECT_ERROR(catastrophic.Find(text, 0, begin, end),
               "tokenizer.json: pattern: the regular expression");
}

}  // namespace
}  // namespace infini_train
