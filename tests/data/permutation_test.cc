#include "infini_train/data/permutation.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace infini_train {
namespace {

TEST(Permutation, VisitsEveryIndexOnce) {
  for (const uint64_t size : {1u, 2u, 3u, 4u, 5u, 7u, 16u, 17u, 63u, 64u, 65u, 1000u, 4097u}) {
    for (const uint64_t seed : {0u, 1u, 12345u}) {
      const Permutation permutation(size, seed);
      std::vector<int> visits(size, 0);
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t image = permutation(i);
        ASSERT_LT(image, size);
        ++visits[image];
      }
      EXPECT_EQ(visits, std::vector<int>(size, 1)) << "size " << size << ", seed " << seed;
    }
  }
}

TEST(Permutation, DependsOnTheSeedAlone) {
  const Permutation a(1000, 1), same(1000, 1), other(1000, 2);
  int fixed = 0, shared = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a(i), same(i));
    fixed += a(i) == i;
    shared += a(i) == other(i);
  }
  // A random permutation has one fixed point on average; 10 or more have probability 1e-7.
  EXPECT_LT(fixed, 10);
  EXPECT_LT(shared, 10);
}

TEST(Permutation, NeighboursLandFarApart) {
  constexpr uint64_t kSize = 10000;
  const Permutation permutation(kSize, 7);
  double distance = 0;
  for (uint64_t i = 0; i + 1 < kSize; ++i) {
    const uint64_t a = permutation(i), b = permutation(i + 1);
    distance += static_cast<double>(a > b ? a - b : b - a);
  }
  // Two uniform draws differ by a third of the range, with a standard error of 0.24 % here.
  EXPECT_NEAR(distance / (kSize - 1) / kSize, 1.0 / 3, 0.015);
}

TEST(Permutation, HandlesMoreThanFourBillion) {
  constexpr uint64_t kSize = (uint64_t{1} << 40) + 3;
  const Permutation permutation(kSize, 0);
  for (const uint64_t i : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 39, kSize - 1}) {
    EXPECT_LT(permutation(i), kSize);
  }
}

}  // namespace
}  // namespace infini_train
