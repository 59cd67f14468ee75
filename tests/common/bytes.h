#pragma once

#include <fstream>
#include <string>
#include <string_view>

#include "infini_train/core/tensor.h"

namespace infini_train::test {

/// Makes a file of these bytes.
inline void WriteBytes(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// The elements of a tensor, row-major, as they are in memory.
inline std::string BytesOf(const Tensor& tensor) {
  std::string bytes(tensor.nbytes(), '\0');
  tensor.CopyToHost(bytes.data());
  return bytes;
}

}  // namespace infini_train::test
