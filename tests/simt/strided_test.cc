#include "backends/simt/strided.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace infini_train::simt {
namespace {

TEST(Divider, DividesLikeTheOperator) {
  constexpr std::uint32_t kLargest = (std::uint32_t{1} << 31) - 1;
  std::vector<std::uint32_t> numbers;
  for (int bit = 0; bit < 31; ++bit) {
    for (int delta = -2; delta <= 2; ++delta) {
      const std::int64_t number = (std::int64_t{1} << bit) + delta;
      if (number >= 0) numbers.push_back(static_cast<std::uint32_t>(number));
    }
  }
  for (std::uint32_t number = 3; number < kLargest / 3; number = number * 3 + 1)
    numbers.push_back(number);
  numbers.push_back(kLargest);
  for (std::uint32_t divisor : numbers) {
    if (divisor == 0) continue;
    const Divider divider = Divider::By(divisor);
    for (std::uint32_t n : numbers)
      ASSERT_EQ(divider.Quotient(n), n / divisor) << n << " / " << divisor;
  }
}

TEST(MergedDims, MergesWhatAllArraysWalkLikeOne) {
  const Dims shape = {2, 1, 3, 4};
  const Dims contiguous = {12, 12, 4, 1};
  const MergedDims one(shape, {&contiguous, &contiguous});
  EXPECT_EQ(one.rank, 1);
  EXPECT_EQ(one.sizes[0], 24);
  EXPECT_EQ(one.strides[0][1], 1);

  const Dims broadcast = {0, 0, 4, 1};
  const MergedDims two(shape, {&contiguous, &broadcast});
  EXPECT_EQ(two.rank, 2);
  EXPECT_EQ(two.sizes[0], 2);
  EXPECT_EQ(two.sizes[1], 12);
  EXPECT_EQ(two.strides[0][1], 0);
}

TEST(MergedDims, WalksTheFirstArrayInMemoryOrder) {
  const Dims transposed = {1, 5};
  const Dims row_major = {7, 1};
  const MergedDims dims({5, 7}, {&transposed, &row_major});
  EXPECT_EQ(dims.rank, 2);
  EXPECT_EQ(dims.sizes[0], 7);
  EXPECT_EQ(dims.inner_size(), 5);
  EXPECT_EQ(dims.inner_stride(0), 1);
  EXPECT_EQ(dims.inner_stride(1), 7);
}

TEST(MergedDims, ScalarsAndEmptyShapes) {
  const Dims none;
  const MergedDims scalar(none, {&none});
  EXPECT_EQ(scalar.rank, 1);
  EXPECT_EQ(scalar.sizes[0], 1);
  const Dims strides = {3, 1};
  const MergedDims empty({0, 3}, {&strides});
  EXPECT_EQ(StridedIndex<1>(empty).numel, 0);
}

/// Expects the offsets of some positions to be those that coordinates give.
void ExpectOffsets(const Dims& shape, const Dims& first, const Dims& second, bool is_narrow) {
  const MergedDims dims(shape, {&first, &second});
  const StridedIndex<2> index(dims);
  EXPECT_EQ(index.numel, Numel(shape));
  EXPECT_EQ(index.is_narrow, is_narrow);
  for (int part = 0; part <= 64; ++part) {
    const std::int64_t position = (index.numel - 1) / 64 * part;
    std::int64_t offsets[2];
    const std::int64_t inner = index.Locate(position, offsets);
    std::int64_t expected[2] = {};
    std::int64_t rest = position;
    for (int d = dims.rank - 1; d >= 0; --d) {
      for (int k = 0; k < 2; ++k)
        expected[k] += rest % dims.sizes[d] * dims.strides[d][k];
      rest /= dims.sizes[d];
    }
    EXPECT_EQ(offsets[0], expected[0]) << position;
    EXPECT_EQ(offsets[1], expected[1]) << position;
    EXPECT_EQ(inner, position % dims.inner_size());
  }
}

TEST(StridedIndex, FindsOffsets) {
  ExpectOffsets({5, 7, 3}, {21, 3, 1}, {1, 5, 35}, true);
  ExpectOffsets({5, 7, 3}, {42, 6, 2}, {0, 1, 0}, true);
  ExpectOffsets({1000}, {1}, {3}, true);
}

TEST(StridedIndex, CountsBeyond32Bits) {
  const std::int64_t rows = (std::int64_t{1} << 31) - 1;
  ExpectOffsets({rows, 1}, {1, 1}, {2, 1}, true);
  ExpectOffsets({rows + 1, 1}, {1, 1}, {2, 1}, false);
  ExpectOffsets({70000, 50257}, {50257, 1}, {0, 1}, false);
  ExpectOffsets({3, 70000, 50257}, {1, 3, 210000}, {50257, 0, 1}, false);
  // Few positions that lie far apart.
  ExpectOffsets({3, 5}, {std::int64_t{1} << 40, 1}, {1, std::int64_t{1} << 33}, true);
}

TEST(StridedLoop, TakesVectorsWhereAllArraysAllow) {
  alignas(16) float memory[64] = {};
  const auto width = [](const Dims& shape, const Array& out, const Array& x) {
    return StridedLoop<2>(shape, {out, x}, 4).width;
  };
  const auto at = [&](int offset, const Dims& strides) {
    return Array{memory + offset, strides, sizeof(float)};
  };
  EXPECT_EQ(width({2, 8}, at(0, {8, 1}), at(0, {8, 1})), 4);
  EXPECT_EQ(width({2, 8}, at(0, {8, 1}), at(4, {8, 1})), 4);
  EXPECT_EQ(width({2, 8}, at(0, {8, 1}), at(1, {8, 1})), 1);
  EXPECT_EQ(width({2, 8}, at(0, {12, 1}), at(0, {8, 1})), 4);
  EXPECT_EQ(width({2, 8}, at(0, {9, 1}), at(0, {8, 1})), 1);
  EXPECT_EQ(width({2, 8}, at(0, {8, 1}), at(0, {0, 1})), 4);
  EXPECT_EQ(width({2, 8}, at(0, {8, 1}), at(1, {1, 0})), 4);  // Repeats an element: any address.
  EXPECT_EQ(width({2, 8}, at(0, {8, 1}), at(0, {1, 2})), 1);
  EXPECT_EQ(width({3}, at(0, {1}), at(0, {1})), 1);
}

TEST(StridedLoop, CountsItemsWithAShortLastOne) {
  alignas(16) float memory[64] = {};
  const StridedLoop<1> loop({2, 10}, {Array{memory, {12, 1}, sizeof(float)}}, 4);
  EXPECT_EQ(loop.width, 4);
  EXPECT_EQ(loop.items.numel, 6);
  EXPECT_EQ(loop.inner_size, 10);
  std::int64_t offsets[1];
  EXPECT_EQ(loop.items.Locate(5, offsets), 2);
  EXPECT_EQ(offsets[0], 12 + 8);
}

}  // namespace
}  // namespace infini_train::simt
