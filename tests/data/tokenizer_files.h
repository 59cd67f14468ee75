#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "infini_train/data/tokenizer/byte_alphabet.h"
#include "infini_train/data/unicode/unicode.h"

namespace infini_train::test {

/// The characters that stand for the bytes of `text`.
inline std::string InAlphabet(std::string_view text) {
  std::string token;
  for (const char c : text)
    unicode::Append(token, CharacterOfByte(static_cast<uint8_t>(c)));
  return token;
}

/// The 256 byte characters, numbered in the order of their code points: "!" is 0, "a" 64, space
/// 220.
inline nlohmann::json ByteVocabulary() {
  nlohmann::json vocabulary = nlohmann::json::object();
  int id = 0;
  for (uint32_t character = 0; character < 0x144; ++character) {
    std::string token;
    unicode::Append(token, character);
    if (BytesOfToken(token)) vocabulary[token] = id++;
  }
  return vocabulary;
}

/// A byte-level tokenizer with ByteLevel's own splitting and no prefix space.
inline nlohmann::json ByteLevelTokenizer(const nlohmann::json& vocabulary,
                                         const nlohmann::json& merges) {
  return {
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

inline void WriteJson(const std::string& path, const nlohmann::json& value) {
  std::ofstream(path) << value.dump();
}

}  // namespace infini_train::test
