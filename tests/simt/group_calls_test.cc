// Shuffles and votes of every logical width, on warps of 32 and 64 lanes.

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/simt/emulated.h"

namespace infini_train::simt {
namespace {

struct Results {
  int from;
  int from_next;  // the source differs by lane
  int exchanged;
  int down;
  int up;
  double wide;
  std::uint64_t odd;
  bool any;
  bool none;
  bool all;
  bool not_all;
};

struct Triple {
  float a, b, c;
};

template <int kWidth>
SIMT_KERNEL void CallEverything(Results* out) {
  const int lane = ThreadIndex();
  Results result;
  result.from = Shuffle<kWidth>(100 + lane, kWidth / 2);
  result.from_next = Shuffle<kWidth>(100 + lane, lane + 1);
  result.exchanged = ShuffleXor<kWidth>(lane, kWidth / 2);
  result.down = ShuffleDown<kWidth>(lane, 3);
  result.up = ShuffleUp<kWidth>(lane, 3);
  const Triple triple = Shuffle<kWidth>(Triple{1.0f * lane, 0.5f, 0.25f}, 0);
  result.wide = double{triple.a} + double{triple.b} + double{triple.c};
  SyncGroup<kWidth>();
  result.odd = Ballot<kWidth>(lane % 2 == 1);
  result.any = Any<kWidth>(lane % kWidth == kWidth - 1);
  result.none = Any<kWidth>(false);
  result.all = All<kWidth>(true);
  result.not_all = All<kWidth>(lane % kWidth != 0);
  out[lane] = result;
}

class GroupCalls : public testing::TestWithParam<int> {
 protected:
  template <int kWidth>
  void Check() {
    SCOPED_TRACE(kWidth);
    constexpr int kLanes = 192;
    std::vector<Results> results(kLanes);
    ASSERT_EQ(Emulate({.block = kLanes}, CallEverything<kWidth>, results.data()), std::nullopt);
    for (int lane = 0; lane < kLanes; ++lane) {
      SCOPED_TRACE(lane);
      const Results& found = results[lane];
      const int first = lane / kWidth * kWidth;
      const int member = lane % kWidth;
      EXPECT_EQ(found.from, 100 + first + kWidth / 2 % kWidth);
      EXPECT_EQ(found.from_next, 100 + first + (member + 1) % kWidth);
      EXPECT_EQ(found.exchanged, first + (member ^ (kWidth / 2)));
      EXPECT_EQ(found.down, member + 3 < kWidth ? lane + 3 : lane);
      EXPECT_EQ(found.up, member >= 3 ? lane - 3 : lane);
      EXPECT_EQ(found.wide, first + 0.75);
      std::uint64_t odd = 0;
      for (int i = 0; i < kWidth; ++i)
        odd |= std::uint64_t{(first + i) % 2 == 1} << i;
      EXPECT_EQ(found.odd, odd);
      EXPECT_TRUE(found.any);
      EXPECT_FALSE(found.none);
      EXPECT_TRUE(found.all);
      EXPECT_FALSE(found.not_all);
    }
  }
};

TEST_P(GroupCalls, GiveEachLaneItsValue) {
  const OptionsGuard options({.warp_size = GetParam()});
  EXPECT_EQ(WarpSize(), GetParam());
  Check<1>();
  Check<2>();
  Check<4>();
  Check<8>();
  Check<16>();
  Check<32>();
  if (GetParam() == 64) Check<64>();
}
INSTANTIATE_TEST_SUITE_P(Warp, GroupCalls, testing::Values(32, 64));

SIMT_KERNEL void ReduceGroups(std::int64_t* sums, float* largest) {
  const int lane = ThreadIndex();
  sums[lane] = ReduceGroup<16>(std::int64_t{lane}, SumOp{});
  largest[lane] = ReduceGroup<8>(lane == 11 ? NAN : static_cast<float>(lane), MaxOp{});
}

TEST(ReduceGroup, GivesEveryLaneTheResult) {
  std::vector<std::int64_t> sums(64);
  std::vector<float> largest(64);
  ASSERT_EQ(Emulate({.block = 64}, ReduceGroups, sums.data(), largest.data()), std::nullopt);
  for (int lane = 0; lane < 64; ++lane) {
    EXPECT_EQ(sums[lane], 16 * (lane / 16 * 16) + 120);
    if (lane / 8 == 1) {
      EXPECT_TRUE(std::isnan(largest[lane]));
    } else {
      EXPECT_EQ(largest[lane], static_cast<float>(lane / 8 * 8 + 7));
    }
  }
}

template <typename T>
SIMT_KERNEL void ReduceBlocks(T* sums, T* smallest) {
  const T value = static_cast<T>(ThreadIndex() + 1) / T{7};
  // Twice: the shared array of the first is free again.
  sums[ThreadIndex()] = ReduceBlock(value, SumOp{}, T{0});
  smallest[ThreadIndex()] = ReduceBlock(T{0} - value, MinOp{}, T{0});
}

template <typename T>
void CheckReduceBlock(int lanes) {
  SCOPED_TRACE(lanes);
  std::vector<T> sums(lanes), smallest(lanes);
  ASSERT_EQ(Emulate({.block = lanes}, ReduceBlocks<T>, sums.data(), smallest.data()), std::nullopt);
  double expected = 0;
  for (int i = 1; i <= lanes; ++i)
    expected += i / 7.0;
  // 5 roundings in a group, one for each group.
  const double eps = std::numeric_limits<T>::epsilon();
  EXPECT_NEAR(sums[0], expected, (7 + lanes / 32) * eps * expected);
  for (int lane = 0; lane < lanes; ++lane) {
    EXPECT_EQ(sums[lane], sums[0]);
    EXPECT_EQ(smallest[lane], -static_cast<T>(lanes) / T{7});
  }
}

TEST(ReduceBlock, GivesEveryLaneTheResult) {
  for (int lanes : {32, 64, 96, 256, 1024}) {
    CheckReduceBlock<float>(lanes);
    CheckReduceBlock<double>(lanes);
  }
}

}  // namespace
}  // namespace infini_train::simt
