#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/file.h"
#include "infini_train/core/tensor.h"

namespace infini_train {
class JsonNode;
}

/// The safetensors format: 8-byte little-endian header length, JSON header, tensor data. See
/// https://github.com/huggingface/safetensors#format.
namespace infini_train::checkpoint {

/// A memory-mapped safetensors file.
class INFINI_TRAIN_API SafetensorsFile {
 public:
  /// Maps `path` and checks all of it before any data is touched: header length, JSON, types,
  /// shapes, and that the tensors cover the data exactly once. Throws Error naming the file and,
  /// where one is concerned, the tensor.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::string& path() const { return file_->path(); }
  /// In order of name.
  std::vector<std::string> Names() const;
  bool Contains(const std::string& name) const { return entries_.contains(name); }
  const Dims& shape(const std::string& name) const { return At(name).shape; }
  DataType dtype(const std::string& name) const { return At(name).dtype; }
  /// The header's `__metadata__`.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// The tensor on the CPU: a read-only view of the mapping (which stays alive with it) where the
  /// data is aligned for its type, else a copy. Throws Error when there is none of that name, and
  /// for a bool other than 0 and 1.
  Tensor Load(const std::string& name) const;
  /// Asks the system to have the tensor's data in memory soon, and returns at once. Gives its
  /// bytes.
  std::size_t ReadAhead(const std::string& name) const;

 private:
  struct Entry {
    DataType dtype;
    Dims shape;
    std::size_t begin;  ///< in bytes from the start of the file
    std::size_t end;
  };
  Entry ParseEntry(const JsonNode& node, std::size_t data_begin) const;
  void CheckCoverage(std::size_t data_begin) const;
  const Entry& At(const std::string& name) const;

  std::shared_ptr<MappedFile> file_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// Writes tensors (of any device and layout) as one file, atomically, in the reference writer's
/// order: wider types first, then by name. Those of floating types become `dtype`, if given, one at
/// a time. Throws Error for a name that occurs twice, or when the file cannot be written.
INFINI_TRAIN_API void WriteSafetensors(
    const std::filesystem::path& path, const NamedTensors& tensors,
    const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
    std::optional<DataType> dtype = std::nullopt);

/// All safetensors of a model folder: `model.safetensors.index.json` with its shards, or
/// `model.safetensors`.
class INFINI_TRAIN_API SafetensorsFolder {
 public:
  /// Opens every file. Throws Error naming what is wrong, or all that is missing.
  explicit SafetensorsFolder(const std::filesystem::path& folder);

  /// The index, or the only file.
  const std::string& path() const { return path_; }
  std::vector<std::string> Names() const;
  bool Contains(const std::string& name) const { return file_of_.contains(name); }
  const Dims& shape(const std::string& name) const { return FileOf(name).shape(name); }
  DataType dtype(const std::string& name) const { return FileOf(name).dtype(name); }
  Tensor Load(const std::string& name) const { return FileOf(name).Load(name); }
  std::size_t ReadAhead(const std::string& name) const { return FileOf(name).ReadAhead(name); }

 private:
  const SafetensorsFile& FileOf(const std::string& name) const;

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;
};

/// Writes `model.safetensors`, or numbered shards of at most max_shard_bytes and their index, and
/// removes weight files of an earlier save there that the new ones do not replace. `dtype` as of
/// WriteSafetensors.
INFINI_TRAIN_API void WriteSafetensorsFolder(const std::filesystem::path& folder,
                                             const NamedTensors& tensors,
                                             std::int64_t max_shard_bytes,
                                             std::optional<DataType> dtype = std::nullopt);

}  // namespace infini_train::checkpoint
