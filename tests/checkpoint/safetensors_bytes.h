#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace infini_train::test {

/// The 8 bytes that start a safetensors file.
inline std::string HeaderLength(std::uint64_t length) {
  return {reinterpret_cast<const char*>(&length), sizeof(length)};
}

/// A safetensors file, right or wrong.
inline std::string SafetensorsBytes(std::string_view json, std::string_view data) {
  return HeaderLength(json.size()) + std::string(json) + std::string(data);
}

/// The bytes of 1, 2, 3, 4 as float32.
inline std::string OneToFour() {
  const float values[] = {1, 2, 3, 4};
  std::string bytes(sizeof(values), '\0');
  std::memcpy(bytes.data(), values, sizeof(values));
  return bytes;
}

}  // namespace infini_train::test
