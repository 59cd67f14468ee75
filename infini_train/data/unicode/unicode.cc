#include "infini_train/data/unicode/unicode.h"

namespace infini_train::unicode {

Character DecodeMultiByte(const char* begin, const char* end) {
  const auto byte = [begin](size_t i) { return static_cast<unsigned char>(begin[i]); };
  const auto continues = [&](size_t i) { return begin + i < end && (byte(i) & 0xC0) == 0x80; };
  // Table 3-7 of the Unicode standard: the second byte excludes overlong forms, surrogates and
  // code points beyond 0x10FFFF.
  const unsigned lead = byte(0);
  if (lead >= 0xC2 && lead <= 0xDF && continues(1)) {
    return {(lead & 0x1F) << 6 | (byte(1) & 0x3Fu), 2};
  }
  if (lead >= 0xE0 && lead <= 0xEF && continues(1) && continues(2) &&
      !(lead == 0xE0 && byte(1) < 0xA0) && !(lead == 0xED && byte(1) > 0x9F)) {
    return {(lead & 0x0F) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu), 3};
  }
  if (lead >= 0xF0 && lead <= 0xF4 && continues(1) && continues(2) && continues(3) &&
      !(lead == 0xF0 && byte(1) < 0x90) && !(lead == 0xF4 && byte(1) > 0x8F)) {
    return {
        (lead & 0x07) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu),
        4};
  }
  return {kInvalid, 1};
}

void Append(std::string& text, uint32_t code_point) {
  const auto put = [&text](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

size_t WellFormedPrefix(std::string_view text) {
  const char* position = text.data();
  const char* const end = position + text.size();
  while (position < end) {
    const Character character = Decode(position, end);
    if (character.code_point == kInvalid) break;
    position += character.size;
  }
  return static_cast<size_t>(position - text.data());
}

}  // namespace infini_train::unicode
