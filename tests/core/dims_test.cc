#include "infini_train/core/dims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "infini_train/core/error.h"
#include "tests/core/child_process.h"

namespace infini_train {
namespace {

TEST(Dims, HoldsAtMostEightNumbers) {
  Dims dims = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(dims.size(), kMaxRank);
  EXPECT_EQ(dims.back(), 8);
  EXPECT_ERROR(dims.push_back(9), "at most 8 dimensions, got 9");
  EXPECT_ERROR(Dims(std::vector<std::int64_t>(9)), "got 9");
  EXPECT_ERROR(Dims::Filled(9, 1), "got 9");
  EXPECT_EQ(dims.ToString(), "[1, 2, 3, 4, 5, 6, 7, 8]");
  EXPECT_EQ(Dims().ToString(), "[]");
}

TEST(Dims, InsertsAndErasesAnywhere) {
  Dims dims = {1, 2, 3};
  dims.insert(0, 9);
  EXPECT_EQ(dims, Dims({9, 1, 2, 3}));
  dims.insert(4, 8);
  EXPECT_EQ(dims, Dims({9, 1, 2, 3, 8}));
  dims.erase(2);
  EXPECT_EQ(dims, Dims({9, 1, 3, 8}));
  dims.erase(3);
  EXPECT_EQ(dims, Dims({9, 1, 3}));
  EXPECT_NE(dims, Dims({9, 1}));
  EXPECT_NE(dims, Dims({9, 1, 4}));
}

TEST(Numel, MultipliesAndRefusesNonsense) {
  EXPECT_EQ(Numel({}), 1);
  EXPECT_EQ(Numel({2, 3, 4}), 24);
  EXPECT_EQ(Numel({2, 0, 4}), 0);
  EXPECT_EQ(Numel({INT64_MAX}), INT64_MAX);
  EXPECT_EQ(Numel({INT64_MAX, 0}), 0);
  EXPECT_ERROR(Numel({INT64_MAX, 2}), "too many elements");
  EXPECT_ERROR(Numel({std::int64_t{1} << 32, std::int64_t{1} << 31}), "too many elements");
  EXPECT_ERROR(Numel({0, INT64_MAX, 2}), "too many elements");  // their strides would not fit
  EXPECT_ERROR(Numel({2, -1}), "negative extent in shape [2, -1]");
  EXPECT_ERROR(Numel({0, -1}), "negative");
}

TEST(ContiguousStrides, AreRowMajor) {
  EXPECT_EQ(ContiguousStrides({2, 3, 4}), Dims({12, 4, 1}));
  EXPECT_EQ(ContiguousStrides({}), Dims());
  EXPECT_EQ(ContiguousStrides({2, 0, 4}), Dims({4, 4, 1}));
}

TEST(BroadcastShapes, FollowsNumPy) {
  EXPECT_EQ(BroadcastShapes({2, 3}, {3}), Dims({2, 3}));
  EXPECT_EQ(BroadcastShapes({8, 1, 6, 1}, {7, 1, 5}), Dims({8, 7, 6, 5}));
  EXPECT_EQ(BroadcastShapes({}, {2}), Dims({2}));
  EXPECT_EQ(BroadcastShapes({0}, {1}), Dims({0}));
  EXPECT_EQ(BroadcastShapes({1, 3}, {0, 1}), Dims({0, 3}));
  EXPECT_ERROR(BroadcastShapes({2, 3}, {2}), "[2, 3] and [2]");
  EXPECT_ERROR(BroadcastShapes({0}, {2}), "[0] and [2]");
}

TEST(NormalizeDim, CountsFromTheEnd) {
  EXPECT_EQ(NormalizeDim(-1, 3), 2);
  EXPECT_EQ(NormalizeDim(-3, 3), 0);
  EXPECT_EQ(NormalizeDim(2, 3), 2);
  EXPECT_ERROR(NormalizeDim(3, 3), "dimension 3 is out of range for 3 dimensions");
  EXPECT_ERROR(NormalizeDim(-4, 3), "-4");
  EXPECT_ERROR(NormalizeDim(0, 0), "0 dimensions");
}

}  // namespace
}  // namespace infini_train
