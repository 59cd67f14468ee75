#include "infini_train/data/samples/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "infini_train/core/file.h"
#include "tests/common/errors.h"
#include "tests/data/token_files.h"

namespace infini_train {
namespace {

using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Refusal(const std::string& line) {
  return test::MessageOf([&] { ParseJsonRecord(line); });
}

TEST(JsonRecord, IsATextOrAPromptWithItsCompletion) {
  const auto text = ParseJsonRecord(R"( {"text": "a\n\u00e9", "id": 5} )");
  ASSERT_TRUE(text);
  EXPECT_FALSE(text->has_prompt);
  EXPECT_EQ(text->text, "a\n\u00e9");
  const auto pair = ParseJsonRecord("{\"completion\": \"c\", \"prompt\": \"\"}\r");
  ASSERT_TRUE(pair);
  EXPECT_TRUE(pair->has_prompt);
  EXPECT_EQ(pair->prompt, "");
  EXPECT_EQ(pair->text, "c");
  for (const char* blank : {"", "  \t", "\r"})
    EXPECT_FALSE(ParseJsonRecord(blank)) << blank;
}

TEST(JsonRecord, SaysWhatIsWrong) {
  EXPECT_EQ(Refusal(R"({"instruction": "a", "output": "b"})"),
            R"(expected "text", or "prompt" and "completion", found "instruction", "output")");
  EXPECT_EQ(Refusal("{}"), R"(expected "text", or "prompt" and "completion", found no field)");
  EXPECT_THAT(Refusal(R"({"text": "a", "prompt": "b"})"), StartsWith(R"(expected "text", or)"));
  EXPECT_EQ(Refusal(R"({"prompt": "a"})"), R"("completion": missing)");
  EXPECT_EQ(Refusal(R"({"completion": "a"})"), R"("prompt": missing)");
  EXPECT_EQ(Refusal(R"({"text": 5})"), R"("text": expected a string, found number)");
  EXPECT_EQ(Refusal(R"({"prompt": ["a"], "completion": "a"})"),
            R"("prompt": expected a string, found array)");
  EXPECT_EQ(Refusal("[1]"), "expected a JSON object, found array");
  EXPECT_EQ(Refusal(R"({"text": "a)"),
            "expected a JSON object, found a mistake at byte 12 of the line");
  EXPECT_EQ(Refusal(R"({"text": "a"} x)"),
            "expected a JSON object, found a mistake at byte 15 of the line");
  EXPECT_THAT(Refusal("{\"text\": \"\xff\"}"), HasSubstr("found a mistake at byte 11"));
  EXPECT_THAT(Refusal(std::string(100000, '[')), HasSubstr("found a mistake"));
}

TEST(FindJsonLines, TakesFilesFoldersAndPatterns) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "data/below");
  for (const char* name : {"b.jsonl", "a.jsonl", "below/c.jsonl", "notes.txt", ".hidden.jsonl"})
    WriteFileAtomically(folder / "data" + "/" + name, "");
  EXPECT_THAT(
      FindJsonLines({folder / "data"}),
      ElementsAre(folder / "data/a.jsonl", folder / "data/b.jsonl", folder / "data/below/c.jsonl"));
  EXPECT_THAT(
      FindJsonLines({folder / "data/notes.txt", folder / "data/[ab].jsonl"}),
      ElementsAre(folder / "data/notes.txt", folder / "data/a.jsonl", folder / "data/b.jsonl"));
  std::filesystem::create_directories(folder / "empty");
  const auto refusal = [](const std::string& input) -> std::string {
    return test::MessageOf([&] { FindJsonLines({input}); });
  };
  EXPECT_EQ(refusal(folder / "empty"),
            folder / "empty" + ": expected files of JSON lines (*.jsonl), found none");
  EXPECT_EQ(refusal(folder / "x.jsonl"),
            folder / "x.jsonl" + ": expected JSON lines, found no file of that name or pattern");
}

}  // namespace
}  // namespace infini_train
