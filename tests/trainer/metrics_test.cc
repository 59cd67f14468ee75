#include "infini_train/trainer/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "tests/core/child_process.h"
#include "tests/data/token_files.h"

namespace infini_train::trainer {
namespace {

using infini_train::test::TemporaryFolder;
using ::testing::ElementsAre;

std::vector<std::string> ReadLines(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream text(ReadFile(path));
  for (std::string line; std::getline(text, line);)
    lines.push_back(line);
  return lines;
}

TEST(JsonLines, WritesOneObjectAStepAtOnce) {
  const TemporaryFolder folder;
  const auto sink = OpenJsonLines(folder / "m.jsonl", 0);
  sink->Write(1, {{"loss", 4.5}, {"lr", 1e-4}});
  EXPECT_THAT(ReadLines(folder / "m.jsonl"), ElementsAre(R"({"step":1,"loss":4.5,"lr":0.0001})"));
  sink->Write(2, {{"loss", std::numeric_limits<double>::quiet_NaN()},
                  {"lr", std::numeric_limits<double>::infinity()}});
  EXPECT_EQ(ReadLines(folder / "m.jsonl").at(1), R"({"step":2,"loss":"nan","lr":"inf"})");
}

TEST(JsonLines, ANewRunReplacesTheFile) {
  const TemporaryFolder folder;
  OpenJsonLines(folder / "m.jsonl", 0)->Write(1, {});
  OpenJsonLines(folder / "m.jsonl", 0)->Write(7, {});
  EXPECT_THAT(ReadLines(folder / "m.jsonl"), ElementsAre(R"({"step":7})"));
}

TEST(JsonLines, AResumedRunDropsTheStepsThatItRepeatsAndAHalfLine) {
  const TemporaryFolder folder;
  std::ofstream(folder / "m.jsonl")
      << "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n{\"st";
  OpenJsonLines(folder / "m.jsonl", 2)->Write(3, {{"loss", 1.0}});
  EXPECT_THAT(ReadLines(folder / "m.jsonl"),
              ElementsAre(R"({"step":1})", R"({"step":2})", R"({"step":3,"loss":1.0})"));
}

TEST(JsonLines, AResumedRunWithoutAnOldFileStartsOne) {
  const TemporaryFolder folder;
  OpenJsonLines(folder / "m.jsonl", 2)->Write(3, {});
  EXPECT_THAT(ReadLines(folder / "m.jsonl"), ElementsAre(R"({"step":3})"));
}

TEST(JsonLines, AFileThatCannotBeWrittenIsAnError) {
  const TemporaryFolder folder;
  EXPECT_ERROR(OpenJsonLines(folder / "no/m.jsonl", 0), "no/m.jsonl: cannot be written");
  if (std::filesystem::exists("/dev/full")) {
    const auto sink = OpenJsonLines("/dev/full", 0);
    EXPECT_ERROR(sink->Write(1, {}), "/dev/full: cannot be written: No space left on device");
  }
}

/// CRC-32C bit by bit, from its polynomial.
std::uint32_t Crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

std::uint32_t Masked(std::uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

template <typename T>
T Take(std::string_view& bytes) {
  T value;
  EXPECT_GE(bytes.size(), sizeof(T));
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

std::uint64_t TakeVarint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = Take<std::uint8_t>(bytes);
    value |= std::uint64_t{byte & 0x7Fu} << shift;
    if ((byte & 0x80u) == 0) return value;
  }
}

/// The fields of a protocol-buffer message, as their bytes.
std::multimap<int, std::string> Fields(std::string_view message) {
  std::multimap<int, std::string> fields;
  while (!message.empty()) {
    const std::uint64_t key = TakeVarint(message);
    std::string value;
    switch (key & 7u) {
      case 0:
        value = std::to_string(TakeVarint(message));
        break;
      case 1:
        value = std::string(message.substr(0, 8));
        message.remove_prefix(8);
        break;
      case 2: {
        const std::uint64_t size = TakeVarint(message);
        value = std::string(message.substr(0, size));
        message.remove_prefix(size);
        break;
      }
      case 5:
        value = std::string(message.substr(0, 4));
        message.remove_prefix(4);
        break;
      default:
        ADD_FAILURE() << "wire type " << (key & 7u);
        return fields;
    }
    fields.emplace(static_cast<int>(key >> 3), value);
  }
  return fields;
}

std::string One(const std::multimap<int, std::string>& fields, int number) {
  EXPECT_EQ(fields.count(number), 1u) << "field " << number;
  return fields.find(number)->second;
}

TEST(Crc32c, HasTheCheckValueOfItsDefinition) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
}

TEST(TensorBoard, WritesTfRecordsOfEvents) {
  const TemporaryFolder folder;
  {
    const auto sink = OpenTensorBoard(folder / "runs");
    sink->Write(1, {{"loss", 4.5}, {"lr", 0.25}});
    sink->Write(300, {{"loss", 3.0}});
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "runs"))
    files.push_back(entry.path());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_THAT(files[0].filename().string(), ::testing::StartsWith("events.out.tfevents."));

  const std::string content = ReadFile(files[0].string());
  std::string_view bytes = content;
  std::vector<std::multimap<int, std::string>> events;
  while (!bytes.empty()) {
    const std::string_view length_bytes = bytes.substr(0, 8);
    const auto length = Take<std::uint64_t>(bytes);
    EXPECT_EQ(Take<std::uint32_t>(bytes), Masked(Crc32c(length_bytes)));
    ASSERT_GE(bytes.size(), length + 4);
    const std::string_view data = bytes.substr(0, length);
    bytes.remove_prefix(length);
    EXPECT_EQ(Take<std::uint32_t>(bytes), Masked(Crc32c(data)));
    events.push_back(Fields(data));
  }
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(One(events[0], 3), "brain.Event:2");
  double wall_time = 0.0;
  std::memcpy(&wall_time, One(events[1], 1).data(), 8);
  EXPECT_GT(wall_time, 1.5e9);
  EXPECT_EQ(One(events[1], 2), "1");
  EXPECT_EQ(One(events[2], 2), "300");

  const auto summary = Fields(One(events[1], 5));
  std::map<std::string, float> scalars;
  for (const auto& [number, value] : summary) {
    EXPECT_EQ(number, 1);
    const auto scalar = Fields(value);
    std::memcpy(&scalars[One(scalar, 1)], One(scalar, 2).data(), 4);
  }
  EXPECT_EQ(scalars, (std::map<std::string, float>{{"loss", 4.5f}, {"lr", 0.25f}}));
}

TEST(TensorBoard, AFolderThatCannotBeWrittenIsAnError) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file");
  EXPECT_ERROR(OpenTensorBoard(folder / "file/runs"), "file/runs: cannot create the folder");
}

}  // namespace
}  // namespace infini_train::trainer
