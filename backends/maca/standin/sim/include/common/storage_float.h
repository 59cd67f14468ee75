#pragma once

// What the 16-bit types share. As in the SDK, they are made from float and double alone: an integer
// is ambiguous.

#include <cstdint>
#include <cstring>

namespace maca_standin {

inline std::uint32_t BitsOf(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float FloatOf(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace maca_standin
