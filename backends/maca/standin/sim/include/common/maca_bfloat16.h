#pragma once

#include "common/storage_float.h"

struct __maca_bfloat16 {
  std::uint16_t bits;

  __maca_bfloat16() = default;
  explicit __maca_bfloat16(float value) {
    const std::uint32_t raw = maca_standin::BitsOf(value);
    const bool is_nan = (raw & 0x7FFFFFFFu) > 0x7F800000u;
    bits =
        is_nan ? 0x7FFFu : static_cast<std::uint16_t>((raw + 0x7FFFu + ((raw >> 16) & 1u)) >> 16);
  }
  explicit __maca_bfloat16(double value) : __maca_bfloat16(static_cast<float>(value)) {}
};
typedef __maca_bfloat16 maca_bfloat16;

inline __maca_bfloat16 __float2bfloat16_rn(float value) {
  return __maca_bfloat16(value);
}
inline __maca_bfloat16 __float2bfloat16(float value) {
  return __maca_bfloat16(value);
}
inline float __bfloat162float(__maca_bfloat16 value) {
  return maca_standin::FloatOf(static_cast<std::uint32_t>(value.bits) << 16);
}
