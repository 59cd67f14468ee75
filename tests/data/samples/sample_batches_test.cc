#include "infini_train/data/samples/sample_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/data/data_loader.h"
#include "tests/common/errors.h"
#include "tests/data/token_files.h"

namespace infini_train {
namespace {

using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kEnd = 256;
constexpr int64_t kIgnore = TokenBatch::kIgnore;

class SampleBatchesTest : public ::testing::Test {
 protected:
  std::shared_ptr<const SampleRows> Rows(const std::string& lines, int64_t sequence_length,
                                         bool packing) const {
    WriteFileAtomically(folder_ / "data.jsonl", lines);
    return std::make_shared<const SampleRows>(
        std::make_shared<const SampleDataset>(*LoadTokenizer("bytes"),
                                              std::vector<std::string>{folder_ / "data.jsonl"},
                                              SampleOptions{.sequence_length = sequence_length}),
        sequence_length, packing);
  }

  /// `count` texts of 1 to 5 letters, all different.
  static std::string Texts(int count) {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      std::string text(static_cast<size_t>(i % 5), 'a');
      text += static_cast<char>('A' + i);
      lines += "{\"text\": \"" + text + "\"}\n";
    }
    return lines;
  }

  TemporaryFolder folder_;
};

TEST_F(SampleBatchesTest, PadsASampleToItsRow) {
  const auto rows = Rows("{\"text\": \"ab\"}\n{\"prompt\": \"pq\", \"completion\": \"c\"}\n", 4,
                         /*packing=*/false);
  const SampleBatches batches(rows, {.batch_size = 2});
  EXPECT_EQ(batches.steps_per_epoch(), 1);
  const TokenBatch batch = batches.Make(0, 0);
  EXPECT_THAT(batch.inputs, ElementsAre('a', 'b', 0, 0, 'p', 'q', 'c', 0));
  EXPECT_THAT(batch.targets, ElementsAre('b', kEnd, kIgnore, kIgnore, kIgnore, 'c', kEnd, kIgnore));
  EXPECT_TRUE(batch.sample_lengths.empty());
  EXPECT_THAT(batch.row_lengths, ElementsAre(2, 3));
  EXPECT_EQ(batch.num_targets, 4);
  EXPECT_EQ(batch.num_targets_of_others, 0);
}

TEST_F(SampleBatchesTest, PacksSamplesOneAfterAnother) {
  const auto rows = Rows(
      "{\"text\": \"abc\"}\n{\"prompt\": \"pq\", \"completion\": \"c\"}\n"
      "{\"text\": \"x\"}\n{\"text\": \"y\"}\n",
      4, /*packing=*/true);
  EXPECT_EQ(rows->rows().size(), 2);
  EXPECT_EQ(rows->most_samples(), 2);
  const SampleBatches batches(rows, {.batch_size = 3});
  const TokenBatch batch = batches.Make(0, 0);
  EXPECT_THAT(batch.inputs, ElementsAre('a', 'b', 'c', 'x', 'p', 'q', 'c', 'y', 0, 0, 0, 0));
  EXPECT_THAT(batch.targets, ElementsAre('b', 'c', kEnd, kEnd, kIgnore, 'c', kEnd, kEnd, kIgnore,
                                         kIgnore, kIgnore, kIgnore));
  EXPECT_THAT(batch.sample_lengths, ElementsAre(3, 1, 3, 1, 0, 0)) << "as many in each batch";
  EXPECT_EQ(batch.num_targets, 7);
  EXPECT_TRUE(batch.row_lengths.empty());
}

TEST_F(SampleBatchesTest, AnEpochHasWholeOptimizerSteps) {
  const auto rows = Rows(Texts(9), 8, /*packing=*/false);
  const SampleBatches batches(rows, {.batch_size = 2, .batches_together = 4});
  EXPECT_EQ(batches.steps_per_epoch(), 8);
  EXPECT_GT(batches.Make(0, 4).num_targets, 0);
  EXPECT_EQ(batches.Make(0, 5).num_targets, 0);
  EXPECT_EQ(batches.Make(0, 7).num_targets, 0);
  EXPECT_THROW(SampleBatches(rows, {.batches_together = 0}), Error);
}

TEST_F(SampleBatchesTest, AnEpochVisitsEverySampleOnceForAnyNumberOfRanks) {
  for (const bool packing : {false, true}) {
    const auto rows = Rows(Texts(23), 8, packing);
    // The inputs of rows in the order of training, by epoch, for one rank.
    std::map<int64_t, std::vector<int64_t>> expected;
    for (const int64_t world_size : {1, 2, 3}) {
      SCOPED_TRACE(world_size);
      std::vector<SampleBatches> ranks;
      for (int64_t rank = 0; rank < world_size; ++rank)
        ranks.emplace_back(rows, SampleBatchOptions{2, rank, world_size, 1, true, 5});
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<int64_t> order;
        int64_t targets = 0;
        for (int64_t step = 0; step < ranks[0].steps_per_epoch(); ++step) {
          int64_t of_all = -1;
          for (const SampleBatches& rank : ranks) {
            const TokenBatch batch = rank.Make(epoch, step);
            targets += batch.num_targets;
            if (of_all < 0) of_all = batch.num_targets + batch.num_targets_of_others;
            EXPECT_EQ(batch.num_targets + batch.num_targets_of_others, of_all);
            for (const int64_t token : batch.inputs) {
              // Letters that only one sample has.
              if (token >= 'A' && token < 'a') order.push_back(token);
            }
          }
        }
        EXPECT_EQ(order.size(), 23u);
        EXPECT_EQ(targets, rows->dataset().counts().targets);
        const auto [first, is_new] = expected.emplace(epoch, order);
        EXPECT_EQ(order, first->second) << (is_new ? "" : "another order of ranks");
      }
    }
    EXPECT_NE(expected[0], expected[1]);
    EXPECT_NE(expected[1], expected[2]);
  }
}

TEST_F(SampleBatchesTest, ALoaderResumesAtEveryPositionAndWithOtherSteps) {
  const auto rows = Rows(Texts(11), 8, /*packing=*/false);
  const auto batches = [&](int64_t batch_size, uint64_t seed = 5) {
    return std::make_shared<const SampleBatches>(
        rows, SampleBatchOptions{batch_size, 0, 1, 1, true, seed});
  };
  for (int consumed = 0; consumed < 9; ++consumed) {
    DataLoader loader(batches(2));
    for (int i = 0; i < consumed; ++i)
      loader.Next();
    DataLoader resumed(batches(2));
    resumed.LoadState(loader.State());
    EXPECT_EQ(resumed.Next().inputs, loader.Next().inputs);
  }
  DataLoader large(batches(4));
  large.Next();
  DataLoader small(batches(1));
  small.LoadState(large.State());
  const TokenBatch next = large.Next();
  for (size_t row = 0; row < 4; ++row) {
    const auto begin = next.inputs.begin() + static_cast<ptrdiff_t>(8 * row);
    EXPECT_EQ(small.Next().inputs, std::vector<int64_t>(begin, begin + 8));
  }
  const auto refusal = [&](DataLoader& loader, const std::string& state) -> std::string {
    return test::MessageOf([&] { loader.LoadState(state); });
  };
  DataLoader other_order(batches(4, 6));
  EXPECT_THAT(refusal(other_order, large.State()), HasSubstr("seed was 5, is 6"));
  const std::string state = large.State();
  std::string lines = Texts(11);
  lines[lines.find('A')] = 'Z';
  const auto other_rows = Rows(lines, 8, /*packing=*/true);
  DataLoader other_data(
      std::make_shared<const SampleBatches>(other_rows, SampleBatchOptions{4, 0, 1, 1, true, 5}));
  EXPECT_THAT(refusal(other_data, state),
              ::testing::AllOf(HasSubstr("packing was false, is true"), HasSubstr("data was ")));
}

}  // namespace
}  // namespace infini_train
