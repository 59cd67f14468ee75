#include "infini_train/data/token_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/data/input_files.h"
#include "infini_train/data/token_dataset.h"
#include "tests/common/errors.h"
#include "tests/data/token_files.h"

namespace infini_train {
namespace {

using test::TemporaryFolder;
using test::WriteRawShard;
using test::WriteShard16;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string OpenError(const std::string& path) {
  return test::MessageOf([&] { const TokenShard shard(path); });
}

TEST(TokenShard, ReadsBothTypes) {
  const TemporaryFolder folder;
  WriteShard16(folder / "16.bin", 100, 65000);
  const TokenShard narrow(folder / "16.bin");
  EXPECT_EQ(narrow.type(), TokenType::kUint16);
  EXPECT_EQ(narrow.size(), 100);
  EXPECT_EQ(narrow[99], 65099);

  WriteRawShard<uint32_t>(folder / "32.bin", 20240801, 7, 100, 100, 100000);
  const TokenShard wide(folder / "32.bin");
  EXPECT_EQ(wide.type(), TokenType::kUint32);
  std::vector<int64_t> tokens(3);
  EXPECT_EQ(wide.Read(97, tokens), 100099);
  EXPECT_THAT(tokens, ElementsAre(100097, 100098, 100099));
  EXPECT_THROW(wide.Read(98, tokens), Error);
  EXPECT_THROW(wide.Read(-1, tokens), Error);
}

TEST(TokenShard, RefusesWhatIsNotATokenFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "bad.bin";
  EXPECT_THAT(OpenError(path), AllOf(HasSubstr(path), HasSubstr("No such file")));
  EXPECT_THAT(OpenError(folder.path()), HasSubstr("found a folder"));
  std::ofstream(path).close();
  EXPECT_EQ(OpenError(path),
            path + ": not a token file: expected a header of 1024 bytes, found 0 bytes");
  WriteRawShard<uint16_t>(path, 12345, 1, 10, 10);
  EXPECT_EQ(OpenError(path), path +
                                 ": not a token file: expected magic 20240520 (uint16) or 20240801 "
                                 "(uint32), found 12345");
  WriteRawShard<uint16_t>(path, 20240520, 2, 10, 10);
  EXPECT_EQ(OpenError(path),
            path + ": expected version 1 of a token file with magic 20240520, found 2");
  WriteRawShard<uint32_t>(path, 20240801, 1, 10, 10);
  EXPECT_EQ(OpenError(path),
            path + ": expected version 7 of a token file with magic 20240801, found 1");
  WriteRawShard<uint16_t>(path, 20240520, 1, -5, 0);
  EXPECT_EQ(OpenError(path), path + ": expected a number of tokens in the header, found -5");
}

TEST(TokenShard, RefusesACountThatIsNotTheSize) {
  const TemporaryFolder folder;
  const std::string path = folder / "bad.bin";
  WriteRawShard<uint16_t>(path, 20240520, 1, 100, 99);
  EXPECT_EQ(OpenError(path), path +
                                 ": the header announces 100 tokens, so expected 1224 bytes, found "
                                 "1222 bytes (99 tokens)");
  WriteRawShard<uint16_t>(path, 20240520, 1, 100, 101);
  EXPECT_THAT(OpenError(path), HasSubstr("expected 1224 bytes, found 1226 bytes (101 tokens)"));
  WriteRawShard<uint16_t>(path, 20240801, 7, 100, 100);
  EXPECT_THAT(OpenError(path), HasSubstr("expected 1424 bytes, found 1224 bytes (50 tokens)"));
}

TEST(TokenShardWriter, WritesWhatTheReaderReads) {
  const TemporaryFolder folder;
  for (const TokenType type : {TokenType::kUint16, TokenType::kUint32}) {
    const std::string path = folder / "out.bin";
    std::vector<int32_t> tokens(100000);
    std::iota(tokens.begin(), tokens.end(), 0);
    if (type == TokenType::kUint16) {
      for (int32_t& token : tokens)
        token %= 65536;
    }
    TokenShardWriter writer(path, type);
    writer.Append(std::span(tokens).first(12345));
    writer.Append(std::span(tokens).subspan(12345));
    writer.Commit();
    EXPECT_EQ(std::filesystem::file_size(path), 1024u + 100000u * TokenSize(type));
    const TokenShard shard(path);
    ASSERT_EQ(shard.size(), 100000);
    for (int64_t i = 0; i < shard.size(); ++i)
      ASSERT_EQ(shard[i], tokens[static_cast<size_t>(i)]);
  }
}

TEST(TokenShardWriter, LeavesTheOldFileUntilCommitted) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.bin";
  WriteShard16(path, 7);
  {
    TokenShardWriter abandoned(path, TokenType::kUint16);
    abandoned.Append(std::vector<int32_t>{1, 2, 3});
    EXPECT_EQ(TokenShard(path).size(), 7);
  }
  EXPECT_EQ(TokenShard(path).size(), 7);
  const std::filesystem::directory_iterator files(folder.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "a temporary file was left behind";
}

TEST(TokenShardWriter, RefusesTokensThatDoNotFit) {
  const TemporaryFolder folder;
  TokenShardWriter writer(folder / "out.bin", TokenType::kUint16);
  writer.Append(std::vector<int32_t>{0, 65535});
  EXPECT_THROW(writer.Append(std::vector<int32_t>{65536}), Error);
  EXPECT_THROW(writer.Append(std::vector<int32_t>{-1}), Error);
  EXPECT_THROW(TokenShardWriter(folder / "no/such/folder.bin", TokenType::kUint16), Error);
}

TEST(TokenDataset, ExpandsPatternsInOrder) {
  const TemporaryFolder folder;
  for (const char* name : {"train_000001.bin", "train_000000.bin", "val_000000.bin"}) {
    WriteShard16(folder / name, 10);
  }
  EXPECT_THAT(ExpandFiles({folder / "val_000000.bin", folder / "train_*.bin"}, "token files"),
              ElementsAre(folder / "val_000000.bin", folder / "train_000000.bin",
                          folder / "train_000001.bin"));
  EXPECT_THROW(ExpandFiles({folder / "test_*.bin"}, "token files"), Error);
  EXPECT_THROW(ExpandFiles({}, "token files"), Error);
  EXPECT_EQ(TokenDataset({folder / "*.bin"}).num_tokens(), 30);
}

}  // namespace
}  // namespace infini_train
