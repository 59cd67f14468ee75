#include "infini_train/data/tokenizer/byte_alphabet.h"

#include <array>

#include "infini_train/data/unicode/unicode.h"

namespace infini_train {
namespace {

struct Alphabet {
  std::array<uint16_t, 256> character_of_byte{};
  std::array<int16_t, 0x100 + 68> byte_of_character{};
};

constexpr Alphabet kAlphabet = [] {
  Alphabet alphabet;
  alphabet.byte_of_character.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const int character = printable ? byte : next++;
    alphabet.character_of_byte[byte] = static_cast<uint16_t>(character);
    alphabet.byte_of_character[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}();

}  // namespace

uint32_t CharacterOfByte(uint8_t byte) {
  return kAlphabet.character_of_byte[byte];
}

std::optional<std::string> BytesOfToken(std::string_view token) {
  std::string bytes;
  const char* const end = token.data() + token.size();
  for (const char* p = token.data(); p < end;) {
    const unicode::Character character = unicode::Decode(p, end);
    if (character.code_point >= kAlphabet.byte_of_character.size()) return std::nullopt;
    const int byte = kAlphabet.byte_of_character[character.code_point];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    p += character.size;
  }
  return bytes;
}

}  // namespace infini_train
