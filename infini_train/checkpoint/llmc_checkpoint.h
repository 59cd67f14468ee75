#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/file.h"
#include "infini_train/core/tensor.h"

/// llm.c's model files: 256 little-endian int32 of header, then tensors one after the other without
/// names, all float32 or all bfloat16.
namespace infini_train::checkpoint {

inline constexpr int kLlmcHeaderInts = 256;

/// Whether a file starts with `magic`. False for files that cannot be read.
INFINI_TRAIN_API bool IsLlmcFile(const std::filesystem::path& path, std::int32_t magic);

/// Reads a file from front to back.
class INFINI_TRAIN_API LlmcReader {
 public:
  /// Maps the file and checks the magic and that the version is 3 (float32) or 5 (bfloat16). Throws
  /// Error naming the file.
  LlmcReader(const std::filesystem::path& path, std::int32_t magic);

  const std::string& path() const { return file_->path(); }
  std::int32_t header(int index) const { return header_[static_cast<std::size_t>(index)]; }
  DataType dtype() const { return dtype_; }

  /// Throws Error unless exactly `elements` follow the header.
  void CheckPayload(std::int64_t elements) const;
  /// The next tensor, a view of the mapping. Throws Error at the end of the file.
  Tensor Next(const Dims& shape);

 private:
  std::shared_ptr<MappedFile> file_;
  std::array<std::int32_t, kLlmcHeaderInts> header_{};
  DataType dtype_ = DataType::kFloat32;
  std::size_t position_ = 0;
};

/// Writes a file from front to back; it appears, complete, on Commit().
class INFINI_TRAIN_API LlmcWriter {
 public:
  /// `fields` are header ints from index 2 on. Throws Error for a dtype other than float32 and
  /// bfloat16.
  LlmcWriter(const std::filesystem::path& path, std::int32_t magic, DataType dtype,
             const std::vector<std::int32_t>& fields);

  /// Appends a tensor, converted to the file's type.
  void Append(const Tensor& tensor);
  void Commit() { file_.Commit(); }

 private:
  AtomicFile file_;
  DataType dtype_;
};

}  // namespace infini_train::checkpoint
