#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "infini_train/core/dtype.h"

/// The two 8-bit floating formats of "FP8 Formats for Deep Learning" (Micikevicius et al. 2022).
/// Arithmetic happens in float: read with the conversion operator, write with the converting
/// constructor, which rounds to nearest even, brings larger numbers and infinities to the largest
/// number, and makes every NaN 0x7F.
namespace infini_train {
namespace detail {

/// The code of a number in a format with kMantissaBits, exponents biased by kBias, and kLargest as
/// the code of its largest number.
template <int kMantissaBits, int kBias, std::uint32_t kLargest>
constexpr std::uint8_t ToFloat8(float value) {
  const auto raw = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (raw >> 24) & 0x80u;
  const std::uint32_t magnitude = raw & 0x7FFFFFFFu;
  constexpr int kDropped = 23 - kMantissaBits;
  constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias);
  const std::uint32_t normal = (magnitude - (kRebias << 23) + (1u << (kDropped - 1)) - 1u +
                                ((magnitude >> kDropped) & 1u)) >>
                               kDropped;
  // Adding the power of two whose last bit is the smallest subnormal's lets the float adder do the
  // shift and the rounding.
  constexpr std::uint32_t kAdded = (kRebias + 1u + static_cast<std::uint32_t>(kDropped)) << 23;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAdded)) -
      kAdded;
  std::uint32_t result = magnitude < ((kRebias + 1u) << 23) ? subnormal : normal;
  result = result > kLargest ? kLargest : result;
  return static_cast<std::uint8_t>(magnitude > 0x7F800000u ? 0x7Fu : sign | result);
}

/// The number of a code; NaN for codes above the largest number's, but infinity for the first of
/// them where the format has one.
template <int kMantissaBits, int kBias, std::uint32_t kLargest, bool kHasInfinity>
constexpr float FromFloat8(std::uint8_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24;
  const std::uint32_t magnitude = bits & 0x7Fu;
  constexpr int kDropped = 23 - kMantissaBits;
  const std::uint32_t normal =
      (magnitude << kDropped) + (static_cast<std::uint32_t>(127 - kBias) << 23);
  // Multiples of the smallest subnormal are exact in float.
  constexpr auto kSmallest =
      std::bit_cast<float>(static_cast<std::uint32_t>(128 - kBias - kMantissaBits) << 23);
  const auto subnormal = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * kSmallest);
  std::uint32_t result = magnitude < (1u << kMantissaBits) ? subnormal : normal;
  result = magnitude > kLargest ? 0x7FC00000u : result;
  if (kHasInfinity) result = magnitude == kLargest + 1u ? 0x7F800000u : result;
  return std::bit_cast<float>(sign | result);
}

}  // namespace detail

/// Largest number 448, no infinity, precision 4 bits.
struct Float8E4M3 {
  std::uint8_t bits = 0;

  static constexpr float kLargest = 448.0f;

  constexpr Float8E4M3() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a storage type of float
  constexpr Float8E4M3(float value) : bits(detail::ToFloat8<3, 7, 0x7E>(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr operator float() const { return detail::FromFloat8<3, 7, 0x7E, false>(bits); }
};

/// Largest number 57344, precision 3 bits: the upper half of a binary16.
struct Float8E5M2 {
  std::uint8_t bits = 0;

  static constexpr float kLargest = 57344.0f;

  constexpr Float8E5M2() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a storage type of float
  constexpr Float8E5M2(float value) : bits(detail::ToFloat8<2, 15, 0x7B>(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr operator float() const { return detail::FromFloat8<2, 15, 0x7B, true>(bits); }
};

static_assert(sizeof(Float8E4M3) == 1 && sizeof(Float8E5M2) == 1);
static_assert(std::is_trivially_copyable_v<Float8E4M3> && std::is_trivially_copyable_v<Float8E5M2>);

template <>
struct ComputeTypeOf<Float8E4M3> {
  using type = float;
};
template <>
struct ComputeTypeOf<Float8E5M2> {
  using type = float;
};

}  // namespace infini_train
