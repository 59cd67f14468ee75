#include "infini_train/core/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "infini_train/core/error.h"
#include "infini_train/core/scalar.h"
#include "tests/core/child_process.h"

namespace infini_train {
namespace {

/// A 16-bit floating-point format, computed with in double.
struct Format {
  int exponent_bits;
  int mantissa_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }

  /// The value of the non-negative finite number with these bits.
  double Value(std::uint32_t bits) const {
    const int exponent = static_cast<int>(bits >> mantissa_bits);
    const std::uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    return exponent == 0
               ? std::ldexp(mantissa, 1 - bias() - mantissa_bits)
               : std::ldexp(mantissa + (1u << mantissa_bits), exponent - bias() - mantissa_bits);
  }

  /// The bits of the nearest number, ties to even, found by bisection over all finite numbers.
  std::uint32_t Round(float value) const {
    const std::uint32_t sign = std::signbit(value) ? 0x8000u : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    std::uint32_t low = 0;
    std::uint32_t high = infinity();  // Stands for the number that would follow the largest.
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (Value(middle) <= magnitude ? low : high) = middle;
    }
    const double below = magnitude - Value(low);
    const double above = Value(high) - magnitude;
    const bool up = above < below || (above == below && (low & 1) != 0);
    return sign | (up ? high : low);
  }
};

constexpr Format kHalf{5, 10};
constexpr Format kBrain{8, 7};

template <typename T>
void CheckEveryBitPattern(const Format& format) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    T value;
    value.bits = static_cast<std::uint16_t>(bits);
    const auto real = static_cast<float>(value);
    const std::uint32_t magnitude = bits & 0x7FFF;
    if (magnitude > format.infinity()) {
      ASSERT_TRUE(std::isnan(real)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(T(real)))) << bits;
      continue;
    }
    const double expected = magnitude == format.infinity() ? INFINITY : format.Value(magnitude);
    ASSERT_EQ(std::fabs(real), expected) << bits;
    ASSERT_EQ(std::signbit(real), bits > 0x7FFF) << bits;
    ASSERT_EQ(T(real).bits, bits);
  }
}

/// Every number, the middle between it and the next, and the floats beside both.
template <typename T>
void CheckRoundingBetweenNeighbours(const Format& format) {
  for (std::uint32_t bits = 0; bits < format.infinity(); ++bits) {
    const auto value = static_cast<float>(format.Value(bits));
    const auto middle = static_cast<float>((format.Value(bits) + format.Value(bits + 1)) / 2);
    for (const float centre : {value, middle}) {
      for (const float candidate :
           {std::nextafterf(centre, -INFINITY), centre, std::nextafterf(centre, INFINITY)}) {
        if (!std::isfinite(candidate)) continue;
        ASSERT_EQ(T(candidate).bits, format.Round(candidate)) << candidate;
        ASSERT_EQ(T(-candidate).bits, format.Round(-candidate)) << -candidate;
      }
    }
  }
}

template <typename T>
void CheckRandomFloats(const Format& format) {
  std::mt19937 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(T(value).bits, format.Round(value)) << value;
  }
}

// Compilers for devices take constexpr functions as their own.
static_assert(static_cast<float>(BFloat16(1.5f)) == 1.5f);
static_assert(static_cast<float>(Float16(0x1p-24f)) == 0x1p-24f &&
              Float16(65520.0f).bits == 0x7C00);

TEST(Float16, ConvertsEveryBitPattern) {
  CheckEveryBitPattern<Float16>(kHalf);
}
TEST(Float16, RoundsToNearestEven) {
  CheckRoundingBetweenNeighbours<Float16>(kHalf);
  CheckRandomFloats<Float16>(kHalf);
}
TEST(Float16, OverflowsToInfinity) {
  EXPECT_EQ(Float16(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(Float16(65519.99f).bits, 0x7BFF);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(Float16(-1e30f).bits, 0xFC00);
  EXPECT_EQ(Float16(INFINITY).bits, 0x7C00);
  EXPECT_EQ(Float16(0x1p-25f).bits, 0);
  EXPECT_EQ(Float16(std::nextafterf(0x1p-25f, 1)).bits, 1);
}
TEST(BFloat16, ConvertsEveryBitPattern) {
  CheckEveryBitPattern<BFloat16>(kBrain);
}
TEST(BFloat16, RoundsToNearestEven) {
  CheckRoundingBetweenNeighbours<BFloat16>(kBrain);
  CheckRandomFloats<BFloat16>(kBrain);
}
TEST(BFloat16, KeepsNaN) {
  // A NaN whose payload lies in the lower half only must not turn into infinity.
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7F800001u)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0xFFFFFFFFu)))));
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
}

TEST(DataType, NamesRoundTrip) {
  for (int i = 0; i < kNumDataTypes; ++i) {
    const auto dtype = static_cast<DataType>(i);
    EXPECT_EQ(ParseDataType(ToString(dtype)), dtype);
  }
  EXPECT_EQ(ParseDataType("fp32"), DataType::kFloat32);
  EXPECT_EQ(ParseDataType("bf16"), DataType::kBFloat16);
  EXPECT_EQ(ParseDataType("fp16"), DataType::kFloat16);
  for (const char* text : {"", "float", "float32 ", "FLOAT32", "float320"}) {
    EXPECT_ERROR(ParseDataType(text), "'" + std::string(text) + "'");
  }
  EXPECT_ERROR(ParseDataType("int8"), "float32, float64, float16, bfloat16, int64");
}

TEST(DataType, KnowsSizesAndKinds) {
  for (int i = 0; i < kNumDataTypes; ++i) {
    const auto dtype = static_cast<DataType>(i);
    DispatchAll("test", dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      EXPECT_EQ(DataTypeOf<T>(), dtype);
      EXPECT_EQ(SizeOf(dtype), sizeof(T));
      EXPECT_EQ(IsFloatingPoint(dtype), !std::is_integral_v<T>);
    });
  }
  EXPECT_ERROR(DispatchFloating("Softmax", DataType::kInt32, [](auto) {}),
               "Softmax: expected a floating type, got int32");
  EXPECT_ERROR(DispatchIndex("Gather", DataType::kBool, [](auto) {}),
               "Gather: expected int64 or int32, got bool");
}

TEST(DataType, PromotesLikePyTorch) {
  using enum DataType;
  EXPECT_EQ(PromoteTypes(kBool, kUInt8), kUInt8);
  EXPECT_EQ(PromoteTypes(kInt32, kInt64), kInt64);
  EXPECT_EQ(PromoteTypes(kInt64, kFloat16), kFloat16);
  EXPECT_EQ(PromoteTypes(kInt64, kBFloat16), kBFloat16);
  EXPECT_EQ(PromoteTypes(kFloat16, kBFloat16), kFloat32);
  EXPECT_EQ(PromoteTypes(kBFloat16, kFloat32), kFloat32);
  EXPECT_EQ(PromoteTypes(kFloat32, kFloat64), kFloat64);
  for (int i = 0; i < kNumDataTypes; ++i) {
    EXPECT_EQ(PromoteTypes(static_cast<DataType>(i), static_cast<DataType>(i)),
              static_cast<DataType>(i));
    for (int j = 0; j < kNumDataTypes; ++j) {
      const auto a = static_cast<DataType>(i);
      const auto b = static_cast<DataType>(j);
      EXPECT_EQ(PromoteTypes(a, b), PromoteTypes(b, a));
    }
  }
}

TEST(DataType, LargestBelowIsTheNeighbourOfTheLimit) {
  using enum DataType;
  EXPECT_EQ(LargestBelow(1, kFloat64), 1 - 0x1p-53);
  EXPECT_EQ(LargestBelow(1, kFloat32), 1 - 0x1p-24);
  EXPECT_EQ(LargestBelow(1, kFloat16), 1 - 0x1p-11);
  EXPECT_EQ(LargestBelow(1, kBFloat16), 1 - 0x1p-8);
  // Limits between two numbers, above and below the middle.
  EXPECT_EQ(LargestBelow(1 + 0x1p-8, kBFloat16), 1);
  EXPECT_EQ(LargestBelow(1 + 0x1.8p-8, kBFloat16), 1);
  EXPECT_EQ(LargestBelow(-1, kBFloat16), -1 - 0x1p-7);
  EXPECT_EQ(LargestBelow(0, kFloat16), -0x1p-24);
  EXPECT_EQ(LargestBelow(0, kBFloat16), -0x1p-133);
  EXPECT_THROW(LargestBelow(1, kInt32), Error);
}

TEST(Scalar, KeepsEveryInteger) {
  EXPECT_EQ(Scalar(INT64_MIN).To<std::int64_t>(), INT64_MIN);
  EXPECT_EQ(Scalar((std::int64_t{1} << 53) + 1).To<std::int64_t>(), (std::int64_t{1} << 53) + 1);
  EXPECT_TRUE(Scalar(3).is_integer());
  EXPECT_FALSE(Scalar(3.0).is_integer());
  EXPECT_EQ(Scalar(0.1).To<double>(), 0.1);
  EXPECT_EQ(Scalar(0.1).To<float>(), 0.1f);
  EXPECT_EQ(Scalar(1.5).To<Float16>().bits, 0x3E00);
  EXPECT_TRUE(Scalar(0.5).To<bool>());
  EXPECT_FALSE(Scalar(0).To<bool>());
}

}  // namespace
}  // namespace infini_train
