#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/simt/math.h"

/// Codes of 8 and of 16 bits, which share a word. Platforms may have instructions for these.
namespace infini_train::simt {

namespace detail {

template <typename F>
SIMT_DEVICE inline std::uint32_t JoinCodes(float a, float b, float c, float d) {
  return static_cast<std::uint32_t>(FromCompute<F>(a).bits) |
         static_cast<std::uint32_t>(FromCompute<F>(b).bits) << 8 |
         static_cast<std::uint32_t>(FromCompute<F>(c).bits) << 16 |
         static_cast<std::uint32_t>(FromCompute<F>(d).bits) << 24;
}

template <typename T>
SIMT_DEVICE inline std::uint32_t JoinHalves(float low, float high) {
  return static_cast<std::uint32_t>(FromCompute<T>(low).bits) |
         static_cast<std::uint32_t>(FromCompute<T>(high).bits) << 16;
}

}  // namespace detail

/// The codes of four numbers in an FP8 format, the first one in the lowest byte.
template <typename F>
SIMT_DEVICE inline std::uint32_t PackCodes(float a, float b, float c, float d) {
  return detail::JoinCodes<F>(a, b, c, d);
}

/// Two numbers in a half type, the first one in the lower half.
template <typename T>
SIMT_DEVICE inline std::uint32_t PackHalves(float low, float high) {
  return detail::JoinHalves<T>(low, high);
}

/// Four of the eight bytes of two words, a's before b's: digit i of the hexadecimal selector is the
/// number of the byte that becomes byte i.
template <typename Word>
requires std::is_same_v<Word, std::uint32_t> SIMT_DEVICE inline Word SelectBytes(
    Word a, std::type_identity_t<Word> b, std::uint32_t selector) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
  Word result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<Word>(bytes >> (selector >> (4 * i) & 7) * 8 & 0xFF) << (8 * i);
  return result;
}

/// Transposes 4 x 4 bytes: byte i of word j becomes byte j of word i.
template <typename Word>
SIMT_DEVICE inline void TransposeBytes(Word (&words)[4]) {
  const Word low_first = SelectBytes(words[0], words[1], 0x5140);
  const Word high_first = SelectBytes(words[0], words[1], 0x7362);
  const Word low_second = SelectBytes(words[2], words[3], 0x5140);
  const Word high_second = SelectBytes(words[2], words[3], 0x7362);
  words[0] = SelectBytes(low_first, low_second, 0x5410);
  words[1] = SelectBytes(low_first, low_second, 0x7632);
  words[2] = SelectBytes(high_first, high_second, 0x5410);
  words[3] = SelectBytes(high_first, high_second, 0x7632);
}

}  // namespace infini_train::simt
