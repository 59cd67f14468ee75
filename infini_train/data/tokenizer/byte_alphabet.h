#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace infini_train {

/// ByteLevel's alphabet (GPT-2): a printable character for every byte. Printable Latin-1 stands for
/// itself, the 68 other bytes are U+0100, U+0101, ... in order.

/// The code point that stands for a byte.
uint32_t CharacterOfByte(uint8_t byte);

/// The bytes that a token string stands for, or nothing if it holds a character outside the
/// alphabet.
std::optional<std::string> BytesOfToken(std::string_view token);

}  // namespace infini_train
