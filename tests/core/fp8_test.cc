// The two 8-bit formats against their definitions in float64.

#include "infini_train/core/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "infini_train/core/half.h"
#include "infini_train/ops/fp8.h"

namespace infini_train {
namespace {

struct Definition {
  int mantissa_bits;
  int bias;
  int largest;  // the code of the largest number
  bool has_infinity;
};

template <typename F>
constexpr Definition kDefinition = {3, 7, 0x7E, false};
template <>
constexpr Definition kDefinition<Float8E5M2> = {2, 15, 0x7B, true};

/// The number of a code, from sign, exponent and mantissa.
template <typename F>
double NumberOf(int code) {
  const Definition d = kDefinition<F>;
  const int magnitude = code & 0x7F;
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  if (magnitude > d.largest) {
    return d.has_infinity && magnitude == d.largest + 1
               ? sign * std::numeric_limits<double>::infinity()
               : std::numeric_limits<double>::quiet_NaN();
  }
  const int exponent = magnitude >> d.mantissa_bits;
  const int mantissa = magnitude & ((1 << d.mantissa_bits) - 1);
  return exponent == 0 ? sign * std::ldexp(mantissa, 1 - d.bias - d.mantissa_bits)
                       : sign * std::ldexp((1 << d.mantissa_bits) + mantissa,
                                           exponent - d.bias - d.mantissa_bits);
}

/// The code of the nearest number, of two equally near ones the even code; saturating.
template <typename F>
int CodeOf(double value) {
  if (std::isnan(value)) return 0x7F;
  const int sign = std::signbit(value) ? 0x80 : 0;
  const double magnitude = std::fabs(value);
  int best = 0;
  if (magnitude > NumberOf<F>(kDefinition<F>.largest)) return sign | kDefinition<F>.largest;
  for (int code = 1; code <= kDefinition<F>.largest; ++code) {
    const double distance = std::fabs(NumberOf<F>(code) - magnitude);
    const double shortest = std::fabs(NumberOf<F>(best) - magnitude);
    if (distance < shortest || (distance == shortest && code % 2 == 0)) best = code;
  }
  return sign | best;
}

template <typename F>
class Fp8Test : public testing::Test {};
using Formats = testing::Types<Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(Fp8Test, Formats);

TYPED_TEST(Fp8Test, EveryCodeIsItsNumber) {
  for (int code = 0; code < 256; ++code) {
    TypeParam value;
    value.bits = static_cast<std::uint8_t>(code);
    const double expected = NumberOf<TypeParam>(code);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(float(value))) << code;
    } else {
      EXPECT_EQ(float(value), expected) << code;
      EXPECT_EQ(std::signbit(float(value)), code >= 0x80) << code;
    }
  }
}

TYPED_TEST(Fp8Test, EveryNumberIsItsCode) {
  for (int code = 0; code < 256; ++code) {
    const double number = NumberOf<TypeParam>(code);
    const int expected = std::isfinite(number) ? code : CodeOf<TypeParam>(number);
    EXPECT_EQ(TypeParam(static_cast<float>(number)).bits, expected) << code;
  }
}

TYPED_TEST(Fp8Test, EveryFloat16RoundsToTheNearestAndToEven) {
  for (int bits = 0; bits < 65536; ++bits) {
    Float16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    ASSERT_EQ(TypeParam(float(half)).bits, CodeOf<TypeParam>(float(half))) << float(half);
  }
}

// A float16 cannot be this near to the middle between two numbers, nor this small or large.
TYPED_TEST(Fp8Test, FloatsAboutTheMiddles) {
  std::vector<float> values = {1e-45f, 1e-30f, 1e30f, 3.4e38f};
  for (int code = 0; code < kDefinition<TypeParam>.largest; ++code) {
    const auto middle =
        static_cast<float>((NumberOf<TypeParam>(code) + NumberOf<TypeParam>(code + 1)) / 2);
    values.push_back(middle);
    values.push_back(std::nextafter(middle, 0.0f));
    values.push_back(std::nextafter(middle, 1e9f));
  }
  for (const float value : values) {
    ASSERT_EQ(TypeParam(value).bits, CodeOf<TypeParam>(value)) << value;
    ASSERT_EQ(TypeParam(-value).bits, CodeOf<TypeParam>(-value)) << -value;
  }
}

TEST(DelayedScale, IsTheLargestPowerOfTwoThatLeavesAFactorOfTwo) {
  for (const float largest : {448.0f, 57344.0f}) {
    for (float amax = 1e-20f; amax < 1e20f; amax *= 1.37f) {
      const double scale = DelayedScale(largest, amax);
      EXPECT_EQ(scale, std::exp2(std::floor(std::log2(scale))));
      EXPECT_LE(scale * 2 * amax, largest) << amax;
      EXPECT_GT(scale * 4 * amax, largest) << amax;
    }
    EXPECT_EQ(DelayedScale(largest, largest / 2), 1.0f);
    EXPECT_EQ(DelayedScale(largest, std::nextafter(largest / 2, 1e9f)), 0.5f);
  }
}

TEST(DelayedScale, StaysWhereInversesAndProductsAreNumbers) {
  EXPECT_EQ(DelayedScale(448.0f, 1e-45f), 0x1p100f);
  EXPECT_EQ(DelayedScale(448.0f, 3e38f), 0x1p-100f);
}

}  // namespace
}  // namespace infini_train
