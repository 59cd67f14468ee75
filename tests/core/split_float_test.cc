#include "infini_train/core/split_float.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace infini_train {
namespace {

float FromBits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

TEST(SplitFloat, EveryLowerHalfComesBack) {
  for (const std::uint32_t high : {0x0000u, 0x8000u, 0x0001u, 0x3F80u, 0x3F81u, 0xBF80u, 0x7F7Fu}) {
    for (std::uint32_t low = 0; low < 0x10000u; ++low) {
      const std::uint32_t bits = (high << 16) | low;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(SplitFloat(FromBits(bits)).Join()), bits)
          << std::hex << bits;
    }
  }
}

TEST(SplitFloat, TheUpperHalfIsTheNearestBFloat16) {
  for (std::uint32_t low = 0; low < 0x10000u; ++low) {
    if (low == 0x8000u) continue;
    const float value = FromBits(0x3F800000u | low);
    ASSERT_EQ(SplitFloat(value).high.bits, BFloat16(value).bits) << std::hex << low;
  }
  // Ties go away from zero.
  EXPECT_EQ(SplitFloat(FromBits(0x3F808000u)).high.bits, 0x3F81u);
  EXPECT_EQ(SplitFloat(FromBits(0xBF808000u)).high.bits, 0xBF81u);
  EXPECT_EQ(SplitFloat(FromBits(0x3F818000u)).high.bits, 0x3F82u);
}

TEST(SplitFloat, InfinityAndNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(SplitFloat(kInfinity).Join(), kInfinity);
  EXPECT_EQ(SplitFloat(-kInfinity).Join(), -kInfinity);
  for (const std::uint32_t bits : {0x7FC00000u, 0x7F800001u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    const SplitFloat split(FromBits(bits));
    EXPECT_TRUE(std::isnan(split.Join())) << std::hex << bits;
    EXPECT_TRUE(std::isnan(static_cast<float>(split.high))) << std::hex << bits;
  }
}

TEST(SplitFloat, ABFloat16IsItsUpperHalf) {
  const SplitFloat split(BFloat16(0.1F), 0);
  EXPECT_EQ(split.Join(), static_cast<float>(BFloat16(0.1F)));
}

}  // namespace
}  // namespace infini_train
