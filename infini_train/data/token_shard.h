#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "infini_train/core/api.h"
#include "infini_train/core/file.h"

namespace infini_train {

/// How a shard stores a token id. Files are little-endian and start with 256 int32 (magic, version,
/// number of tokens, zeros), as in llm.c's data/README and train_llama3.py.
enum class TokenType : uint8_t {
  kUint16,  ///< magic 20240520, version 1
  kUint32,  ///< magic 20240801, version 7
};

/// Bytes of one stored token.
constexpr int64_t TokenSize(TokenType type) {
  return type == TokenType::kUint16 ? 2 : 4;
}

/// The smallest type that holds every id below `vocab_size`.
constexpr TokenType TokenTypeFor(int64_t vocab_size) {
  return vocab_size <= 65536 ? TokenType::kUint16 : TokenType::kUint32;
}

/// A memory-mapped token file. Safe to read from several threads.
class INFINI_TRAIN_API TokenShard {
 public:
  static constexpr int64_t kHeaderBytes = 1024;

  /// Maps and validates `path`. Throws Error, naming the file, what was expected and what was
  /// found, if it is missing, shorter than a header, of an unknown magic or version, or not exactly
  /// as long as its token count says.
  explicit TokenShard(const std::string& path);

  /// Whether a file begins with the magic of one, and so is read as one or not at all. False for
  /// what cannot be read.
  static bool HasMagic(const std::string& path);

  const std::string& path() const { return file_.path(); }
  TokenType type() const { return type_; }
  /// Number of tokens.
  int64_t size() const { return size_; }

  /// The token at `position`, in [0, size()).
  int64_t operator[](int64_t position) const {
    return type_ == TokenType::kUint16 ? Load<uint16_t>(position) : Load<uint32_t>(position);
  }

  /// Copies tokens [begin, begin + out.size()) to `out` and returns the largest of them, -1 for an
  /// empty range. Throws Error if the range leaves the shard.
  int64_t Read(int64_t begin, std::span<int64_t> out) const;

 private:
  template <typename T>
  T Load(int64_t position) const {
    return reinterpret_cast<const T*>(file_.bytes().data() + kHeaderBytes)[position];
  }

  MappedFile file_;
  TokenType type_ = TokenType::kUint16;
  int64_t size_ = 0;
};

/// Writes one shard; the file appears, complete, on Commit().
class INFINI_TRAIN_API TokenShardWriter {
 public:
  TokenShardWriter(const std::string& path, TokenType type);

  const std::string& path() const { return file_.path(); }
  int64_t size() const { return size_; }

  /// Appends token ids. Throws Error if one does not fit the type, or beyond 2^31 - 1 tokens, which
  /// is what a header can say.
  void Append(std::span<const int32_t> tokens);
  void Commit();

 private:
  AtomicFile file_;
  TokenType type_;
  int64_t size_ = 0;
};

}  // namespace infini_train
