#include "infini_train/data/samples/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

using ::testing::ElementsAre;

std::vector<std::vector<int64_t>> RowsOf(const PackedRows& packed) {
  std::vector<std::vector<int64_t>> rows;
  for (int64_t row = 0; row < packed.size(); ++row)
    rows.emplace_back(packed[row].begin(), packed[row].end());
  return rows;
}

TEST(PackBestFit, TakesTheRowWithTheLeastRoom) {
  // 7 leaves 1 and 5 leaves 3: 3 goes to the 5, 1 to the 7, and the last 1 where room is.
  const std::vector<int64_t> lengths = {5, 1, 7, 3, 1};
  EXPECT_THAT(RowsOf(PackBestFit(lengths, 8)),
              ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2), ElementsAre(4)));
  EXPECT_THAT(RowsOf(PackBestFit(std::vector<int64_t>{8, 8}, 8)),
              ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_EQ(PackBestFit({}, 8).size(), 0);
}

TEST(PackBestFit, PutsEverySampleIntoOneRowThatHoldsIt) {
  uint64_t state = 7;
  std::vector<int64_t> lengths;
  for (int i = 0; i < 3000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    lengths.push_back(1 + static_cast<int64_t>((state >> 33) % 100));
  }
  const PackedRows packed = PackBestFit(lengths, 100);
  std::vector<int64_t> samples;
  int64_t before = -1;
  for (const std::vector<int64_t>& row : RowsOf(packed)) {
    int64_t total = 0;
    for (const int64_t sample : row)
      total += lengths[static_cast<size_t>(sample)];
    EXPECT_LE(total, 100);
    EXPECT_TRUE(std::is_sorted(row.begin(), row.end()));
    EXPECT_GT(row.front(), before) << "rows in the order of their first samples";
    before = row.front();
    samples.insert(samples.end(), row.begin(), row.end());
  }
  std::sort(samples.begin(), samples.end());
  std::vector<int64_t> all(lengths.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(samples, all);
  // At least 98 % of the rows' positions are filled.
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  EXPECT_GT(total, packed.size() * 98);
}

TEST(PackBestFit, RefusesWhatDoesNotFit) {
  EXPECT_THROW(PackBestFit(std::vector<int64_t>{3, 9}, 8), Error);
  EXPECT_THROW(PackBestFit(std::vector<int64_t>{0}, 8), Error);
  EXPECT_THROW(OneInEachRow(std::vector<int64_t>{9}, 8), Error);
  EXPECT_THAT(RowsOf(OneInEachRow(std::vector<int64_t>{8, 1}, 8)),
              ElementsAre(ElementsAre(0), ElementsAre(1)));
}

}  // namespace
}  // namespace infini_train
