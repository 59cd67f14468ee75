#pragma once

#include "common/storage_float.h"

struct __half {
  std::uint16_t bits;

  __half() = default;
  explicit __half(float value) {
    const std::uint32_t raw = maca_standin::BitsOf(value);
    const std::uint32_t sign = (raw >> 16) & 0x8000u, magnitude = raw & 0x7FFFFFFFu;
    std::uint32_t result;
    if (magnitude > 0x7F800000u) {
      result = 0x7FFFu;
    } else if (magnitude >= 0x477FF000u) {
      result = 0x7C00u;  // 65520 and above are infinite
    } else if (magnitude >= 113u << 23) {
      result = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
    } else {
      // The sum with 0.5 has its last bit where a subnormal half has it.
      result = maca_standin::BitsOf(maca_standin::FloatOf(magnitude) + 0.5f) - 0x3F000000u;
    }
    bits = static_cast<std::uint16_t>(sign | result);
  }
  explicit __half(double value) : __half(static_cast<float>(value)) {}
};
typedef __half half;

inline __half __float2half_rn(float value) {
  return __half(value);
}
inline __half __float2half(float value) {
  return __half(value);
}
inline float __half2float(__half value) {
  const std::uint32_t exponent = (value.bits >> 10) & 0x1Fu, fraction = value.bits & 0x3FFu;
  float magnitude;
  if (exponent == 0x1Fu) {
    magnitude = maca_standin::FloatOf(0x7F800000u | (fraction << 13));
  } else if (exponent == 0) {
    magnitude = static_cast<float>(fraction) * 0x1p-24f;
  } else {
    magnitude = maca_standin::FloatOf(((exponent + 112u) << 23) | (fraction << 13));
  }
  return (value.bits & 0x8000u) != 0 ? -magnitude : magnitude;
}
