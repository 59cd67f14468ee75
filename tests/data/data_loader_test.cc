#include "infini_train/data/data_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/data/shard_batches.h"
#include "tests/common/errors.h"
#include "tests/data/token_files.h"

namespace infini_train {
namespace {

using test::MessageOf;
using test::TemporaryFolder;
using test::WriteRawShard;
using test::WriteShard16;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::shared_ptr<const TokenDataset> Open(const std::string& pattern) {
  return std::make_shared<const TokenDataset>(std::vector<std::string>{pattern});
}

ShardBatchOptions Options(int64_t batch_size, int64_t sequence_length, int64_t rank = 0,
                          int64_t world_size = 1) {
  ShardBatchOptions options;
  options.geometry = {batch_size, sequence_length, rank, world_size};
  return options;
}

std::shared_ptr<const BatchSource> Batches(std::shared_ptr<const TokenDataset> dataset,
                                           const ShardBatchOptions& options) {
  return std::make_shared<const ShardBatches>(std::move(dataset), options);
}

// Two shards, of 100 tokens 0 ... 99 and of 129 tokens 1000 ... 1128.
class TwoShards : public ::testing::Test {
 protected:
  TwoShards() {
    WriteShard16(folder_ / "s0.bin", 100);
    WriteShard16(folder_ / "s1.bin", 129, 1000);
    dataset_ = Open(folder_ / "s*.bin");
  }

  TemporaryFolder folder_;
  std::shared_ptr<const TokenDataset> dataset_;
};

TEST_F(TwoShards, AllRanksChangeShardTogether) {
  for (const int prefetch : {0, 1, 4}) {
    for (int64_t rank = 0; rank < 4; ++rank) {
      ShardBatchOptions options = Options(2, 8, rank, 4);
      DataLoader loader(Batches(dataset_, options), prefetch);
      EXPECT_EQ(loader.steps_per_epoch(), 3);
      const int64_t first_inputs[] = {16 * rank, 1000 + 16 * rank, 1064 + 16 * rank, 16 * rank};
      for (int64_t step = 0; step < 4; ++step) {
        const TokenBatch batch = loader.Next();
        ASSERT_EQ(batch.inputs.size(), 16u);
        ASSERT_EQ(batch.targets.size(), 16u);
        for (size_t i = 0; i < 16; ++i) {
          EXPECT_EQ(batch.inputs[i], first_inputs[step] + static_cast<int64_t>(i));
          EXPECT_EQ(batch.targets[i], batch.inputs[i] + 1);
        }
        EXPECT_EQ(batch.num_targets, 16);
        EXPECT_EQ(batch.num_targets_of_others, 48);
        EXPECT_EQ(batch.epoch, step / 3);
        EXPECT_EQ(batch.step, step % 3);
      }
    }
  }
}

TEST_F(TwoShards, ResumesWithTheVeryNextBatchAtEveryPosition) {
  for (const bool shuffle : {false, true}) {
    ShardBatchOptions options = Options(2, 8, 3, 4);
    options.shuffle = shuffle;
    for (int consumed = 0; consumed < 8; ++consumed) {
      DataLoader loader(Batches(dataset_, options));
      for (int i = 0; i < consumed; ++i)
        loader.Next();
      const std::string state = loader.State();

      DataLoader resumed(Batches(dataset_, options));
      resumed.Next();
      resumed.LoadState(state);
      EXPECT_EQ(resumed.State(), state);
      for (int i = 0; i < 5; ++i) {
        const TokenBatch expected = loader.Next(), found = resumed.Next();
        EXPECT_EQ(found.inputs, expected.inputs);
        EXPECT_EQ(found.targets, expected.targets);
        EXPECT_EQ(found.epoch, expected.epoch);
        EXPECT_EQ(found.step, expected.step);
      }
    }
  }
}

TEST_F(TwoShards, ShuffledStepsMayGrowAndShrink) {
  const auto rows_of = [](const TokenBatch& batch) {
    std::vector<std::vector<int64_t>> rows;
    for (int64_t row = 0; row < batch.batch_size; ++row) {
      const auto begin = batch.inputs.begin() + row * batch.sequence_length;
      rows.emplace_back(begin, begin + batch.sequence_length);
    }
    return rows;
  };
  ShardBatchOptions options = Options(4, 8);
  options.shuffle = true;
  DataLoader large(Batches(dataset_, options));
  large.Next();
  const std::string after_one = large.State();
  const auto expected = rows_of(large.Next());

  options = Options(2, 8);
  options.shuffle = true;
  const ShardBatchOptions small_options = options;
  DataLoader small(Batches(dataset_, options));
  small.LoadState(after_one);
  auto found = rows_of(small.Next());
  const std::string in_between = small.State();
  for (auto& row : rows_of(small.Next()))
    found.push_back(std::move(row));
  EXPECT_EQ(found, expected);

  large.LoadState(small.State());
  EXPECT_NE(rows_of(large.Next()), expected);
  EXPECT_THAT(MessageOf([&] { large.LoadState(in_between); }),
              HasSubstr("sequences_per_step was 2, is 4"));

  // 28 windows: a loader of 2 is at the end of its epoch where one of 24 has no further step.
  options = Options(24, 8);
  options.shuffle = true;
  DataLoader huge(Batches(dataset_, options));
  DataLoader fresh(Batches(dataset_, small_options));
  for (int64_t step = 0; step < 12; ++step)
    fresh.Next();
  huge.LoadState(fresh.State());
  const TokenBatch next = huge.Next();
  EXPECT_EQ(next.epoch, 1);
  EXPECT_EQ(next.step, 0);
}

TEST_F(TwoShards, RefusesAPositionOfOtherSettings) {
  DataLoader loader(Batches(dataset_, Options(2, 8, 0, 4)));
  loader.Next();
  const std::string state = loader.State();

  ShardBatchOptions other = Options(4, 4, 0, 4);
  other.shuffle = true;
  DataLoader loader_of_other(Batches(dataset_, other));
  const std::string before = loader_of_other.State();
  EXPECT_THAT(
      MessageOf([&] { loader_of_other.LoadState(state); }),
      AllOf(HasSubstr("shuffle was false, is true"), HasSubstr("sequence_length was 8, is 4"),
            HasSubstr("sequences_per_step was 8, is 16")));
  EXPECT_EQ(loader_of_other.State(), before);

  DataLoader one_shard(Batches(Open(folder_ / "s1.bin"), Options(2, 8, 0, 4)));
  EXPECT_THAT(MessageOf([&] { one_shard.LoadState(state); }),
              AllOf(HasSubstr("num_shards was 2, is 1"), HasSubstr("num_tokens was 229, is 129")));
  for (const char* broken : {"", "[]", "{}", "{\"epoch\": 1}"}) {
    EXPECT_THROW(loader.LoadState(broken), Error) << broken;
  }
  std::string long_value = state;
  long_value.replace(long_value.find("false"), 5, '"' + std::string(100'000, 'x') + '"');
  EXPECT_LT(MessageOf([&] { loader.LoadState(long_value); }).size(), 300u);
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  std::string deep_value = state;
  deep_value.replace(deep_value.find("false"), 5, deep);
  EXPECT_THAT(MessageOf([&] { loader.LoadState(deep_value); }),
              HasSubstr("data position: JSON is nested deeper than 64 levels"));
  std::string beyond = state;
  beyond.replace(beyond.find("\"step\":1"), 8, "\"step\":3");
  EXPECT_THAT(MessageOf([&] { loader.LoadState(beyond); }),
              HasSubstr("data position: step: expected an integer from 0 to 2, found 3"));
  std::string last_epoch = state;
  last_epoch.replace(last_epoch.find("\"epoch\":0"), 9, "\"epoch\":9223372036854775807");
  EXPECT_THAT(MessageOf([&] { loader.LoadState(last_epoch); }),
              HasSubstr("data position: epoch: expected an integer from 0 to 9007199254740991"));
}

TEST_F(TwoShards, RefusesAShuffledPositionBeyondTheEpoch) {
  ShardBatchOptions shuffled = Options(2, 8, 0, 4);
  shuffled.shuffle = true;
  DataLoader loader(Batches(dataset_, shuffled));
  loader.Next();
  std::string beyond = loader.State();
  beyond.replace(beyond.find("\"step\":1"), 8, "\"step\":3");
  EXPECT_THAT(MessageOf([&] { loader.LoadState(beyond); }),
              HasSubstr("data position: step: expected an integer from 0 to 2, found 3"));
}

TEST_F(TwoShards, AShuffledEpochIsAPermutationOfTheWindows) {
  // Windows of 8 tokens: 12 of the first shard, 16 of the second.
  std::vector<std::vector<int64_t>> orders;
  std::vector<DataLoader*> loaders;
  std::vector<std::unique_ptr<DataLoader>> owned;
  for (int64_t rank = 0; rank < 2; ++rank) {
    ShardBatchOptions options = Options(2, 8, rank, 2);
    options.shuffle = true;
    options.seed = 5;
    owned.push_back(std::make_unique<DataLoader>(Batches(dataset_, options)));
  }
  EXPECT_EQ(owned[0]->steps_per_epoch(), 7);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> order;
    for (int step = 0; step < 7; ++step) {
      for (const auto& loader : owned) {
        const TokenBatch batch = loader->Next();
        EXPECT_EQ(batch.epoch, epoch);
        for (int row = 0; row < 2; ++row) {
          order.push_back(batch.inputs[row * 8]);
          for (int i = 0; i < 8; ++i) {
            EXPECT_EQ(batch.inputs[row * 8 + i], batch.inputs[row * 8] + i);
            EXPECT_EQ(batch.targets[row * 8 + i], batch.inputs[row * 8 + i] + 1);
          }
        }
      }
    }
    std::set<int64_t> expected;
    for (int i = 0; i < 12; ++i)
      expected.insert(8 * i);
    for (int i = 0; i < 16; ++i)
      expected.insert(1000 + 8 * i);
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()), expected);
    EXPECT_EQ(order.size(), expected.size());
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(DataLoader, DropsTheTail) {
  const TemporaryFolder folder;
  WriteShard16(folder / "s0.bin", 100);
  DataLoader loader(Batches(Open(folder / "s0.bin"), Options(2, 8)));
  EXPECT_EQ(loader.steps_per_epoch(), 6);
  for (int step = 0; step < 5; ++step)
    loader.Next();
  EXPECT_EQ(loader.Next().targets.back(), 96);
  EXPECT_EQ(loader.Next().inputs.front(), 0);
}

TEST(DataLoader, NeedsOneTokenMoreThanAStep) {
  const TemporaryFolder folder;
  WriteShard16(folder / "65.bin", 65);
  EXPECT_EQ(Batches(Open(folder / "65.bin"), Options(2, 8, 0, 4))->steps_per_epoch(), 1);
  WriteShard16(folder / "64.bin", 64);
  EXPECT_EQ(MessageOf([&] { Batches(Open(folder / "64.bin"), Options(2, 8, 0, 4)); }),
            folder / "64.bin" +
                ": expected at least 65 tokens for one step (4 ranks x 2 sequences x 8 tokens, and "
                "one more), found 64");
  WriteShard16(folder / "0.bin", 0);
  EXPECT_THROW(Batches(Open(folder / "0.bin"), Options(1, 1)), Error);
}

TEST(DataLoader, ShardsShorterThanAStepGiveNone) {
  const TemporaryFolder folder;
  WriteShard16(folder / "a.bin", 0);
  WriteShard16(folder / "b.bin", 17);
  WriteShard16(folder / "c.bin", 5);
  WriteShard16(folder / "d.bin", 18, 100);
  DataLoader loader(Batches(Open(folder / "*.bin"), Options(2, 8)));
  EXPECT_EQ(loader.steps_per_epoch(), 2);
  EXPECT_EQ(loader.Next().inputs.front(), 0);
  EXPECT_EQ(loader.Next().inputs.front(), 100);
  EXPECT_EQ(loader.Next().inputs.front(), 0);
}

TEST(DataLoader, Reads32BitTokensWhole) {
  const TemporaryFolder folder;
  WriteRawShard<uint32_t>(folder / "s2.bin", 20240801, 7, 100, 100, 100000);
  DataLoader loader(Batches(Open(folder / "s2.bin"), Options(2, 8)));
  const TokenBatch batch = loader.Next();
  EXPECT_EQ(batch.inputs[0], 100000);
  EXPECT_EQ(batch.targets[0], 100001);
}

TEST(DataLoader, ReportsATokenOutsideTheVocabulary) {
  const TemporaryFolder folder;
  WriteRawShard<uint32_t>(folder / "s2.bin", 20240801, 7, 100, 100, 100000);
  for (const int prefetch : {0, 4}) {
    ShardBatchOptions options = Options(2, 8);
    options.vocab_size = 50257;
    DataLoader loader(Batches(Open(folder / "s2.bin"), options), prefetch);
    EXPECT_EQ(
        MessageOf([&] { loader.Next(); }),
        folder / "s2.bin" +
            ": token 100000 at position 0 (byte 1024): expected ids below the vocabulary size "
            "50257");
  }
  // Good batches before the bad one are delivered; the last target of a batch counts.
  ShardBatchOptions options = Options(2, 8);
  options.vocab_size = 100032;
  DataLoader loader(Batches(Open(folder / "s2.bin"), options));
  loader.Next();
  const std::string message =
      folder / "s2.bin" +
      ": token 100032 at position 32 (byte 1152): expected ids below the vocabulary size 100032";
  EXPECT_EQ(MessageOf([&] { loader.Next(); }), message);
  EXPECT_EQ(MessageOf([&] { loader.Next(); }), message);
  options.vocab_size = 100033;
  DataLoader enough(Batches(Open(folder / "s2.bin"), options));
  enough.Next();
  EXPECT_EQ(enough.Next().targets.back(), 100032);
}

TEST(DataLoader, RefusesAnImpossibleGeometry) {
  const TemporaryFolder folder;
  WriteShard16(folder / "a.bin", 100);
  const auto dataset = Open(folder / "a.bin");
  for (const BatchGeometry& bad :
       {BatchGeometry{0, 8, 0, 1}, BatchGeometry{2, 0, 0, 1}, BatchGeometry{2, 8, 0, 0},
        BatchGeometry{2, 8, 1, 1}, BatchGeometry{2, 8, -1, 1},
        BatchGeometry{int64_t{1} << 40, int64_t{1} << 40, 0, 1}}) {
    ShardBatchOptions options;
    options.geometry = bad;
    EXPECT_THROW(Batches(dataset, options), Error);
    EXPECT_THROW(ShardCoverage(dataset, bad), Error);
  }
}

TEST_F(TwoShards, EvaluationCoversEveryTokenOnce) {
  for (const int64_t length : {1, 7, 8, 33, 500}) {
    for (const int64_t world_size : {1, 3}) {
      std::map<int64_t, int> targets;
      int64_t num_targets = 0;
      for (int64_t rank = 0; rank < world_size; ++rank) {
        const ShardCoverage batches(dataset_, {2, length, rank, world_size});
        EXPECT_EQ(batches.num_targets(), 99 + 128);
        int64_t of_others = 0;
        for (int64_t step = 0; step < batches.steps_per_epoch(); ++step) {
          const TokenBatch batch = batches.Make(0, step);
          ASSERT_EQ(batch.targets.size(), static_cast<size_t>(2 * length));
          int64_t valid = 0;
          for (size_t i = 0; i < batch.targets.size(); ++i) {
            if (batch.targets[i] == TokenBatch::kIgnore) {
              EXPECT_EQ(batch.inputs[i], 0);
              continue;
            }
            EXPECT_EQ(batch.targets[i], batch.inputs[i] + 1);
            ++targets[batch.targets[i]];
            ++valid;
          }
          EXPECT_EQ(batch.num_targets, valid);
          num_targets += valid;
          of_others += valid + batch.num_targets_of_others;
        }
        EXPECT_EQ(of_others, 99 + 128);
      }
      EXPECT_EQ(num_targets, 99 + 128);
      EXPECT_EQ(targets.size(), 99u + 128u);
      EXPECT_EQ(targets.count(0), 0u);
      EXPECT_EQ(targets.count(1000), 0u);
    }
  }
}

}  // namespace
}  // namespace infini_train
