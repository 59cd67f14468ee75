#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/file.h"
#include "infini_train/core/tensor.h"

/// llm.c's model files: 256 little-endian int32 of header, then tensors one after the other without
/// names, all of one type.
namespace infini_train::checkpoint {

inline constexpr int kLlmcHeaderInts = 256;

/// A version that a header may state, and the type of the tensors then.
struct LlmcVersion {
  std::int32_t number;
  DataType dtype;
};
/// 3 for float32, 5 for bfloat16.
INFINI_TRAIN_API const std::vector<LlmcVersion>& LlmcVersions();

/// Whether a file starts with `magic`. False for files that cannot be read.
INFINI_TRAIN_API bool IsLlmcFile(const std::filesystem::path& path, std::int32_t magic);

/// Reads a file from front to back.
class INFINI_TRAIN_API LlmcReader {
 public:
  /// Maps the file and checks the magic and that the version is one of `versions`. Throws Error
  /// naming the file.
  LlmcReader(const std::filesystem::path& path, std::int32_t magic,
             const std::vector<LlmcVersion>& versions = LlmcVersions());

  const std::string& path() const { return file_->path(); }
  std::int32_t version() const { return header(1); }
  std::int32_t header(int index) const { return header_[static_cast<std::size_t>(index)]; }
  /// A number that is stored as the bits of a float32, or cut down to an integer: llm.c's own
  /// writer of Llama files does the latter. Null for an integer other than 0.
  std::optional<double> HeaderReal(int index) const;
  DataType dtype() const { return dtype_; }
  /// Values after the header, less than one whole value at the end not counted.
  std::int64_t PayloadElements() const;
  /// `elements` values from the number `first` on, as they are in the file. Throws Error at the end
  /// of the file.
  std::span<const std::byte> Payload(std::int64_t first, std::int64_t elements) const;

  /// Throws Error unless exactly `elements` follow the header.
  void CheckPayload(std::int64_t elements) const;
  /// The next tensor, a view of the mapping. Throws Error at the end of the file.
  Tensor Next(const Dims& shape);

 private:
  std::shared_ptr<MappedFile> file_;
  std::array<std::int32_t, kLlmcHeaderInts> header_{};
  DataType dtype_ = DataType::kFloat32;
  std::int64_t next_ = 0;  ///< the first value that Next has not given
};

/// Writes a file from front to back; it appears, complete, on Commit().
class INFINI_TRAIN_API LlmcWriter {
 public:
  /// `fields` are header ints from index 2 on. Throws Error for a dtype that no version has.
  LlmcWriter(const std::filesystem::path& path, std::int32_t magic, DataType dtype,
             const std::vector<std::int32_t>& fields,
             const std::vector<LlmcVersion>& versions = LlmcVersions());

  /// Appends a tensor, converted to the file's type.
  void Append(const Tensor& tensor);
  void Commit() { file_.Commit(); }

 private:
  AtomicFile file_;
  DataType dtype_;
};

}  // namespace infini_train::checkpoint
