#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "infini_train/data/unicode/tables.h"

/// UTF-8 and the few Unicode properties that tokenizers are defined by. Text may hold any bytes: a
/// byte that is not part of well-formed UTF-8 counts as one character of class kOther.
namespace infini_train::unicode {

/// Stands for a byte that is not part of well-formed UTF-8.
constexpr uint32_t kInvalid = 0xFFFFFFFF;

struct Character {
  uint32_t code_point;  ///< or kInvalid
  uint32_t size;        ///< in bytes, at least 1
};

/// The multi-byte case of Decode.
Character DecodeMultiByte(const char* begin, const char* end);

/// The character at `begin`, which must be before `end`.
inline Character Decode(const char* begin, const char* end) {
  const auto byte = static_cast<unsigned char>(*begin);
  if (byte < 0x80) return {byte, 1};
  return DecodeMultiByte(begin, end);
}

/// Appends the UTF-8 of a code point.
void Append(std::string& text, uint32_t code_point);

/// The length of the longest well-formed prefix.
size_t WellFormedPrefix(std::string_view text);

/// What the pre-tokenizers' regular expressions tell apart: \p{L}, \p{N}, \s and everything else.
enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };

/// The generated properties of a code point; 0 for kInvalid.
inline uint8_t Properties(uint32_t code_point) {
  if (code_point > 0x10FFFF) return 0;
  const uint8_t pair =
      kProperties[kBlockOfPage[code_point >> 8] * 128u + ((code_point & 0xFF) >> 1)];
  return (code_point & 1) != 0 ? pair >> 4 : pair & 15;
}

inline CharClass ClassOf(uint32_t code_point) {
  return static_cast<CharClass>(Properties(code_point) & 3);
}

/// Brings text into Unicode normalization form C (UAX #15). Returns false, and leaves `out` alone,
/// if `text` is in that form already. Bytes that are not well-formed UTF-8 stay as they are.
bool NormalizeNfc(std::string_view text, std::string& out);

}  // namespace infini_train::unicode
