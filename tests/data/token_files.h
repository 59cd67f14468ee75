#pragma once

#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/common/temporary_folder.h"

namespace infini_train::test {

/// Writes a token file byte by byte, so that it may be wrong: `announced` tokens in the header,
/// `count` tokens first, first + 1, ... in the file.
template <typename T>
void WriteRawShard(const std::string& path, int32_t magic, int32_t version, int32_t announced,
                   int64_t count, T first = 0) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = announced;
  std::vector<T> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<T>(first + i);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(header.data()), 1024);
  file.write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(tokens.size() * sizeof(T)));
}

/// A file of these tokens.
inline void WriteTokens16(const std::string& path, const std::vector<uint16_t>& tokens) {
  WriteRawShard<uint16_t>(path, 20240520, 1, static_cast<int32_t>(tokens.size()), 0);
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file.write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(tokens.size() * sizeof(uint16_t)));
}

inline void WriteShard16(const std::string& path, int64_t count, uint16_t first = 0) {
  WriteRawShard<uint16_t>(path, 20240520, 1, static_cast<int32_t>(count), count, first);
}

}  // namespace infini_train::test
