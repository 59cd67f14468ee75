#include "infini_train/checkpoint/llmc_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "infini_train/core/file.h"
#include "tests/common/bytes.h"
#include "tests/common/errors.h"
#include "tests/common/temporary_folder.h"

namespace infini_train::checkpoint {
namespace {

using infini_train::test::MessageOf;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteBytes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int32_t kMagic = 20240326;

TEST(LlmcCheckpoint, RoundTripsInOrder) {
  const TemporaryFolder folder;
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    const std::string path = folder / "model.bin";
    LlmcWriter writer(path, kMagic, dtype, {7, 8, 9});
    const Tensor base = Tensor::FromVector(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
    writer.Append(base.AsStrided({3, 2}, {1, 3}, 0));
    writer.Append(Tensor::FromVector(std::vector<BFloat16>{BFloat16(0.5F)}, {1}));
    writer.Append(Tensor::FromVector(std::vector<double>{1e300}, {1}));
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.Commit();

    EXPECT_TRUE(IsLlmcFile(path, kMagic));
    EXPECT_FALSE(IsLlmcFile(path, kMagic + 1));
    EXPECT_EQ(std::filesystem::file_size(path), 1024 + 8 * SizeOf(dtype));
    LlmcReader reader(path, kMagic);
    EXPECT_EQ(reader.header(1), dtype == DataType::kFloat32 ? 3 : 5);
    EXPECT_EQ(reader.header(2), 7);
    EXPECT_EQ(reader.header(4), 9);
    EXPECT_EQ(reader.header(5), 0);
    EXPECT_EQ(reader.dtype(), dtype);
    reader.CheckPayload(8);
    const Tensor first = reader.Next({3, 2});
    EXPECT_EQ(first.dtype(), dtype);
    if (dtype == DataType::kFloat32) {
      EXPECT_THAT(first.ToVector<float>(), ElementsAre(1, 4, 2, 5, 3, 6));
    } else {
      const std::vector<BFloat16> values = first.ToVector<BFloat16>();
      EXPECT_EQ(static_cast<float>(values[1]), 4.0F);
    }
    EXPECT_EQ(reader.Next({1}).Item(), 0.5);
    EXPECT_GT(reader.Next({1}).Item(), 1e38);
    EXPECT_THAT(MessageOf([&] { reader.Next({1}); }), HasSubstr(path));
    std::filesystem::remove(path);
  }
}

TEST(LlmcCheckpoint, RefusesTypesThatTheFormatLacks) {
  const TemporaryFolder folder;
  EXPECT_THAT(MessageOf([&] { LlmcWriter(folder / "f", kMagic, DataType::kFloat16, {}); }),
              HasSubstr("float16"));
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
}

std::string Header(std::vector<std::int32_t> fields) {
  fields.resize(kLlmcHeaderInts);
  return {reinterpret_cast<const char*>(fields.data()), 4 * fields.size()};
}

TEST(LlmcCheckpoint, RefusesBadHeaders) {
  const TemporaryFolder folder;
  const std::string path = folder / "model.bin";
  const std::pair<std::string, const char*> cases[] = {
      {"", "found a file of 0"},
      {"abcd", "found a file of 4"},
      {Header({kMagic, 3}).substr(0, 1023), "found a file of 1023"},
      {Header({kMagic + 1, 3}), "expected magic 20240326, found 20240327"},
      {Header({kMagic, 1}), "version"},
      {Header({kMagic, 4}), "version"},
      {Header({kMagic, -3}), "version"},
  };
  for (const auto& [bytes, expected] : cases) {
    WriteBytes(path, bytes);
    EXPECT_THAT(MessageOf([&] { LlmcReader(path, kMagic); }),
                AllOf(HasSubstr(path), HasSubstr(expected)));
  }
  EXPECT_THAT(MessageOf([&] { LlmcReader(folder / "absent", kMagic); }), HasSubstr("absent"));
  EXPECT_FALSE(IsLlmcFile(folder / "absent", kMagic));
  EXPECT_FALSE(IsLlmcFile(folder.path(), kMagic));
}

TEST(LlmcCheckpoint, ChecksThePayload) {
  const TemporaryFolder folder;
  const std::string path = folder / "model.bin";
  WriteBytes(path, Header({kMagic, 3}) + std::string(16, '\0'));
  LlmcReader reader(path, kMagic);
  reader.CheckPayload(4);
  for (const std::int64_t elements : {std::int64_t{3}, std::int64_t{5}, std::int64_t{1} << 62}) {
    EXPECT_EQ(MessageOf([&] { reader.CheckPayload(elements); }),
              path + ": expected " + std::to_string(elements) +
                  " values of float32 for the sizes in the header, found 16 bytes");
  }
  // As many bytes as 64 bits count to 0.
  for (const std::int64_t elements : {std::int64_t{5}, std::int64_t{1} << 62}) {
    EXPECT_EQ(MessageOf([&] { reader.Next({elements}); }),
              path + ": expected " + std::to_string(elements) +
                  " values from value 0 on, found 4 in all");
  }
  EXPECT_EQ(reader.Next({2, 2}).shape(), Dims({2, 2}));
}

}  // namespace
}  // namespace infini_train::checkpoint
