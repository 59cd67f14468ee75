#pragma once

#include <bit>
#include <cstdint>

#include "infini_train/core/half.h"

namespace infini_train {

/// A float32 as the bfloat16 nearest to it and 16 bits more, from which it comes back exactly: a
/// parameter in bfloat16 and its float32 master take no more memory than the master alone.
struct SplitFloat {
  /// Rounded to nearest, and where that is two numbers away from zero. NaN stays NaN.
  BFloat16 high;
  /// What the bits of `high`, read as the upper half of a float32, differ by: an int16.
  std::uint16_t low = 0;

  constexpr SplitFloat(BFloat16 high, std::uint16_t low) : high(high), low(low) {}
  constexpr explicit SplitFloat(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    high.bits = static_cast<std::uint16_t>((is_nan ? bits | 0x400000u : bits + 0x8000u) >> 16);
    low = static_cast<std::uint16_t>(is_nan ? 0u : bits);
  }

  constexpr float Join() const {
    const std::uint32_t difference = (low ^ 0x8000u) - 0x8000u;  // as an int16
    return std::bit_cast<float>((static_cast<std::uint32_t>(high.bits) << 16) + difference);
  }
};

}  // namespace infini_train
