#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace infini_train {

/// IEEE 754 binary16 storage. Arithmetic happens in float: read with the conversion
/// operator, write with the converting constructor (round to nearest even, overflow to infinity).
struct Float16 {
  std::uint16_t bits = 0;

  constexpr Float16() = default;
  constexpr Float16(float value);    // NOLINT(google-explicit-constructor): a storage type of float
  constexpr operator float() const;  // NOLINT(google-explicit-constructor)
};

/// The upper half of a binary32. Rounds to nearest even; NaN stays NaN.
struct BFloat16 {
  std::uint16_t bits = 0;

  constexpr BFloat16() = default;
  constexpr BFloat16(float value);   // NOLINT(google-explicit-constructor): a storage type of float
  constexpr operator float() const;  // NOLINT(google-explicit-constructor)
};

static_assert(sizeof(Float16) == 2 && sizeof(BFloat16) == 2);
static_assert(std::is_trivially_copyable_v<Float16> && std::is_trivially_copyable_v<BFloat16>);

// Branch-free, so that loops over them vectorise; constexpr, so that device compilers take them.

constexpr BFloat16::BFloat16(float value) {
  const auto raw = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (raw + 0x7FFFu + ((raw >> 16) & 1u)) >> 16;
  const std::uint32_t quiet_nan = (raw >> 16) | 0x40u;
  bits = static_cast<std::uint16_t>((raw & 0x7FFFFFFFu) > 0x7F800000u ? quiet_nan : rounded);
}

constexpr BFloat16::operator float() const {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

constexpr Float16::Float16(float value) {
  const auto raw = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (raw >> 16) & 0x8000u;
  const std::uint32_t magnitude = raw & 0x7FFFFFFFu;
  // Normal results: rebias the exponent by 112 and round 13 bits away.
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal results: adding 0.5 lets the float adder do the shift and the rounding.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  std::uint32_t result = magnitude < (113u << 23) ? subnormal : normal;
  result = magnitude >= 0x477FF000u ? 0x7C00u : result;
  result = magnitude > 0x7F800000u ? 0x7E00u : result;
  bits = static_cast<std::uint16_t>(sign | result);
}

constexpr Float16::operator float() const {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFu;
  const std::uint32_t normal = (magnitude << 13) + (112u << 23);
  const std::uint32_t infinite_or_nan = (magnitude << 13) | 0x7F800000u;
  // Multiples of 2^-24 are exact in float.
  const auto subnormal = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  std::uint32_t result = magnitude < 0x0400u ? subnormal : normal;
  result = magnitude >= 0x7C00u ? infinite_or_nan : result;
  return std::bit_cast<float>(sign | result);
}

}  // namespace infini_train
