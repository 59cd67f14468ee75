// JSON of any text is parsed or refused in one short line.

#include "infini_train/core/json/untrusted_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/common/errors.h"

namespace infini_train {
namespace {

using test::MessageOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

std::string Refusal(const std::string& text, RepeatedKeys keys = RepeatedKeys::kLastCounts) {
  return MessageOf([&] { ParseJson(text, "file", keys); });
}

std::string Nested(int levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

TEST(ParseJson, ReadsJson) {
  EXPECT_EQ(ParseJson(R"({"a":[1,2.5,"x"]})", "file")["a"][2], "x");
  EXPECT_EQ(ParseJson(R"({"a":1,"a":2})", "file")["a"], 2);
  EXPECT_EQ(ParseJson(R"({"a":{"b":1},"b":2})", "file", RepeatedKeys::kRefuse)["b"], 2);
}

TEST(ParseJson, RefusesMalformedTextInOneLine) {
  for (const std::string& text : {std::string(), std::string("{"), std::string("\xff\xfe"),
                                  std::string("{\"a\":\n\n}"), "\"" + std::string(1000, 'x')}) {
    EXPECT_THAT(Refusal(text), StartsWith("file: not JSON: parse error at line ")) << text;
    EXPECT_THAT(Refusal(text), MatchesRegex("[ -~]*")) << text;
    EXPECT_LT(Refusal(text).size(), 150u) << text;
  }
}

TEST(ParseJson, RefusesDeepNestingOutsideOfStrings) {
  EXPECT_NO_THROW(ParseJson(Nested(64), "file"));
  EXPECT_NO_THROW(ParseJson("[\"\\\"" + std::string(1000, '[') + "\"]", "file"));
  for (const RepeatedKeys keys : {RepeatedKeys::kLastCounts, RepeatedKeys::kRefuse}) {
    EXPECT_EQ(Refusal(Nested(65), keys), "file: JSON is nested deeper than 64 levels");
    EXPECT_EQ(Refusal(std::string(1'000'000, '{'), keys),
              "file: JSON is nested deeper than 64 levels");
  }
}

TEST(ParseJson, RefusesRepeatedKeysWhereAsked) {
  EXPECT_EQ(Refusal(R"({"a":1,"a":2})", RepeatedKeys::kRefuse), "file: name \"a\" occurs twice");
}

TEST(ParseJson, LooksForRepeatedKeysInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i)
    text += "\"" + std::to_string(i) + "\":{\"a\":[]},";
  text.back() = '}';
  EXPECT_EQ(ParseJson(text, "file", RepeatedKeys::kRefuse).size(), 100'000u);
}

TEST(DescribeJson, IsShortAndPrintable) {
  EXPECT_EQ(DescribeJson({{"a", "é"}}), R"({"a":"\u00e9"})");
  EXPECT_THAT(DescribeJson(std::string(1000, 'x')), EndsWith("..."));
  EXPECT_LT(DescribeJson(std::string(1000, 'x')).size(), 150u);
  EXPECT_THAT(DescribeJson("\xff"), HasSubstr("ufffd"));
  EXPECT_EQ(DescribeJson({1, "a", nullptr}), R"([1,"a",null])");
  EXPECT_EQ(DescribeJson(nlohmann::json(1'000'000, 0)), "an array of 1000000");
  EXPECT_EQ(DescribeJson({{"a", std::string(200, 'x')}}), "an object of 1");
}

}  // namespace
}  // namespace infini_train
