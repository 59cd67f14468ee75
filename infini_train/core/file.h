#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/core/api.h"

namespace infini_train {

/// A whole file mapped read-only into memory. Cheap to move; the bytes stay at their address.
class INFINI_TRAIN_API MappedFile {
 public:
  /// Throws Error if `path` cannot be opened or is not a regular file. An empty file maps to an
  /// empty span.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  /// Asks the system to have a range in memory soon; returns at once. A hint: ranges beyond the
  /// file are cut off, and refusals ignored.
  void ReadAhead(size_t begin, size_t size) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Writes a file that appears under its name only when it is complete: bytes go to a temporary name
/// in the same folder; Commit() syncs it and renames it over `path`. A crash, an exception or a
/// full disk leaves what was at `path` before.
class INFINI_TRAIN_API AtomicFile {
 public:
  /// Throws Error if the folder cannot be written.
  explicit AtomicFile(std::string path);
  /// Removes the temporary file unless committed.
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;

  const std::string& path() const { return path_; }
  /// Bytes appended so far.
  int64_t size() const { return size_; }

  /// Appends. Buffered: errors of the device may surface in a later call or in Commit().
  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text);
  /// Overwrites bytes that were appended before, for headers whose content is known last.
  void Overwrite(int64_t offset, std::span<const std::byte> bytes);
  /// Makes the file durable under its name. Nothing may be written afterwards.
  void Commit();

 private:
  void Flush();
  void Discard() noexcept;

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  int64_t size_ = 0;
  size_t buffered_ = 0;
  std::unique_ptr<std::byte[]> buffer_;
};

/// The whole content of a file. Throws Error if it cannot be read.
INFINI_TRAIN_API std::string ReadFile(const std::string& path);

/// Whether something is at `path`; false also where that cannot be told: opening it says why.
INFINI_TRAIN_API bool PathExists(const std::filesystem::path& path);
INFINI_TRAIN_API bool IsFolder(const std::filesystem::path& path);

/// The number that a file of this machine's byte order begins with; none for a file of fewer bytes,
/// and for what cannot be read.
INFINI_TRAIN_API std::optional<std::int32_t> LeadingInt32(const std::filesystem::path& path);

/// What is in a folder, by name; nothing where there is none. Throws Error where that cannot be
/// told.
INFINI_TRAIN_API std::vector<std::filesystem::path> ListFolder(const std::filesystem::path& folder);

/// Makes a folder and those above it unless they are there. Throws Error naming it.
INFINI_TRAIN_API void CreateFolder(const std::filesystem::path& path);

/// AtomicFile in one call.
INFINI_TRAIN_API void WriteFileAtomically(const std::string& path, std::string_view content);

}  // namespace infini_train
