// A value of a JSON file says what it is, or where it is and what was expected there.

#include "infini_train/core/json/json_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/common/errors.h"

namespace infini_train {
namespace {

using Json = nlohmann::json;

TEST(JsonNode, SaysWhereAValueIs) {
  const Json document = Json::parse(R"({"a":{"b":[[1,{"c":true}]]},"n":null})");
  const JsonNode root(document, "file");
  const JsonNode inner = root.Required("a").Required("b").At(0).At(1);
  EXPECT_TRUE(inner.Required("c").Bool());
  EXPECT_ERROR(inner.Fail("wrong"), "file: a.b[0][1]: wrong");
  EXPECT_ERROR(inner.Required("c").String(), "file: a.b[0][1].c: expected a string, found true");
  EXPECT_ERROR(root.String(), R"(file: expected a string, found {"a":{"b":[[1,{"c":true}]]},)");
  EXPECT_ERROR(root.Required("d"), "file: d: missing");
  EXPECT_ERROR(root.Required("n"), "file: n: missing");
  EXPECT_ERROR(inner.At(0), R"(file: a.b[0][1]: expected an array, found {"c":true})");
  EXPECT_ERROR(root.Required("a").Required("b").At(1), "a.b: expected an array of at least 2");
  EXPECT_ERROR(inner.Required("c").Optional("d"), "a.b[0][1].c: expected an object, found true");
}

TEST(JsonNode, OutlivesTheNameOfItsFile) {
  const Json document = Json::parse(R"({"a":[5]})");
  const JsonNode node = JsonNode(document, std::string("a file of its own")).Required("a").At(0);
  EXPECT_ERROR(node.Bool(), "a file of its own: a[0]: expected true or false, found 5");
}

TEST(JsonNode, TakesAbsentMembersForNull) {
  const Json document = Json::parse(R"({"n":null,"b":true,"s":"x"})");
  const JsonNode root(document, "file");
  EXPECT_TRUE(root.Optional("absent").is_null());
  EXPECT_TRUE(root.BoolOr("absent", true));
  EXPECT_FALSE(root.BoolOr("n", false));
  EXPECT_TRUE(root.BoolOr("b", false));
  EXPECT_EQ(root.StringOr("n", "y"), "y");
  EXPECT_EQ(root.StringOr("s", "y"), "x");
  EXPECT_ERROR(root.BoolOr("s", true), "file: s: expected true or false");
  std::vector<std::string> names;
  root.ForEachMember([&](const std::string& name, const JsonNode& node) {
    names.push_back(name);
    EXPECT_EQ(node.is_null(), name == "n");
  });
  EXPECT_THAT(names, ::testing::ElementsAre("b", "n", "s"));
}

TEST(JsonNode, ReadsNumbersInTheirRanges) {
  const auto node = [](const Json& value) { return JsonNode(value, "file"); };
  const Json most = std::int64_t{1} << 53, beyond = (std::int64_t{1} << 53) + 1;
  const Json least = -(std::int64_t{1} << 53), below = -(std::int64_t{1} << 53) - 1;
  EXPECT_EQ(node(most).Integer(), std::int64_t{1} << 53);
  EXPECT_EQ(node(least).Integer(), -(std::int64_t{1} << 53));
  EXPECT_ERROR(node(beyond).Integer(), "file: expected an integer, found 9007199254740993");
  EXPECT_ERROR(node(below).Integer(), "expected an integer");

  const Json two = 2, minus_one = -1, half = 0.5, text = "2", all_bits = UINT64_MAX;
  EXPECT_EQ(node(two).Index(3), 2);
  EXPECT_ERROR(node(two).Index(2), "file: expected an integer from 0 to 1, found 2");
  EXPECT_EQ(node(two).Unsigned(), 2u);
  EXPECT_EQ(node(all_bits).Unsigned(), UINT64_MAX);
  for (const Json* wrong : {&minus_one, &half, &text}) {
    EXPECT_ERROR(node(*wrong).Index(INT64_MAX), "expected an integer from 0 to");
    EXPECT_ERROR(node(*wrong).Unsigned(), "file: expected an integer of 0 or more, found");
  }
  EXPECT_ERROR(node(all_bits).Index(INT64_MAX), "found 18446744073709551615");
  EXPECT_ERROR(node(all_bits).Integer(), "found 18446744073709551615");
  EXPECT_ERROR(node(half).Integer(), "expected an integer, found 0.5");
  EXPECT_EQ(node(half).Real(), 0.5);
  EXPECT_EQ(node(minus_one).Real(), -1.0);
  EXPECT_ERROR(node(text).Real(), R"(file: expected a number, found "2")");
}

TEST(JsonNode, KnowsTheTypesThatAMemberMayName) {
  const Json document = Json::parse(R"({"type":"B"})");
  const JsonNode root(document, "file");
  EXPECT_EQ(root.Type({"A", "B"}), "B");
  EXPECT_ERROR(root.Type({"A", "C"}), R"(file: type: expected one of A, C, found "B")");
}

}  // namespace
}  // namespace infini_train
