#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

namespace infini_train::testing {

/// A folder that is removed at the end of a test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "infini_train_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

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

inline void WriteShard16(const std::string& path, int64_t count, uint16_t first = 0) {
  WriteRawShard<uint16_t>(path, 20240520, 1, static_cast<int32_t>(count), count, first);
}

}  // namespace infini_train::testing
