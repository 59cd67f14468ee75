// The emulator's instructions for products of small matrices, beside the sums that define them.

#include <array>
#include <bit>
#include <cstdint>
#include <optional>

#include <gtest/gtest.h>

#include "tests/simt/emulated.h"

namespace infini_train::simt {
namespace {

constexpr int kLanes = 32;
constexpr int kRows = 16, kInner = 16, kColumns = 8;

struct Matrices {
  std::array<BFloat16, kRows * kInner> a;
  std::array<BFloat16, kInner * kColumns> b;
  std::array<float, kRows * kColumns> sums;
};

std::uint32_t Pair(BFloat16 first, BFloat16 second) {
  return std::uint32_t{first.bits} | std::uint32_t{second.bits} << 16;
}

/// Every group of the block multiplies matrices of its own.
SIMT_KERNEL void Multiply(Matrices* matrices) {
  Matrices& own = matrices[ThreadIndex() / kLanes];
  const int row = ThreadIndex() % kLanes / 4;
  const int first = ThreadIndex() % 4 * 2;
  std::uint32_t a[4];
  std::uint32_t b[2];
  float sums[4];
  for (int half = 0; half < 2; ++half) {
    const int k = first + 8 * half;
    for (int lower = 0; lower < 2; ++lower) {
      const auto* const of_row = &own.a[(row + 8 * lower) * kInner];
      a[2 * half + lower] = Pair(of_row[k], of_row[k + 1]);
      sums[2 * lower + half] = own.sums[(row + 8 * lower) * kColumns + first + half];
    }
    b[half] = Pair(own.b[k * kColumns + row], own.b[(k + 1) * kColumns + row]);
  }
  SyncGroup<kLanes>();
  MatrixProducts<BFloat16>::Add(sums, a, b);
  for (int i = 0; i < 4; ++i)
    own.sums[(row + i / 2 * 8) * kColumns + first + i % 2] = sums[i];
}

TEST(MatrixProductsTest, AddsProductsOfAllRowsAndColumns) {
  std::array<Matrices, 3> matrices;
  std::uint32_t state = 1;
  const auto next = [&state] {
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(state >> 24) / 16 - 8;  // Exact, and so are sums of products.
  };
  for (Matrices& m : matrices) {
    for (BFloat16& x : m.a)
      x = BFloat16(next());
    for (BFloat16& x : m.b)
      x = BFloat16(next());
    for (float& x : m.sums)
      x = next();
  }
  auto expected = matrices;
  for (Matrices& m : expected) {
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) {
        for (int k = 0; k < kInner; ++k) {
          m.sums[i * kColumns + j] +=
              static_cast<float>(m.a[i * kInner + k]) * static_cast<float>(m.b[k * kColumns + j]);
        }
      }
    }
  }
  const Geometry geometry{.grid_x = 1, .block = 3 * kLanes};
  ASSERT_EQ(Emulate(geometry, &Multiply, matrices.data()), std::nullopt);
  for (std::size_t i = 0; i < matrices.size(); ++i)
    EXPECT_EQ(matrices[i].sums, expected[i].sums);
}

}  // namespace
}  // namespace infini_train::simt
