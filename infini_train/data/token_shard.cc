#include "infini_train/data/token_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <vector>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they are");

struct Format {
  TokenType type;
  int32_t magic;
  int32_t version;
};

constexpr Format kFormats[] = {
    {TokenType::kUint16, 20240520, 1},
    {TokenType::kUint32, 20240801, 7},
};

using Header = std::array<int32_t, TokenShard::kHeaderBytes / sizeof(int32_t)>;

const Format& FormatOf(const std::string& path, const Header& header) {
  for (const Format& format : kFormats) {
    if (header[0] != format.magic) continue;
    if (header[1] != format.version) {
      throw Error(fmt::format("{}: expected version {} of a token file with magic {}, found {}",
                              path, format.version, format.magic, header[1]));
    }
    return format;
  }
  throw Error(
      fmt::format("{}: not a token file: expected magic {} (uint16) or {} (uint32), found {}", path,
                  kFormats[0].magic, kFormats[1].magic, header[0]));
}

template <typename T>
int64_t Widen(const T* from, std::span<int64_t> out) {
  T largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = from[i];
    largest = std::max(largest, from[i]);
  }
  return largest;
}

}  // namespace

TokenShard::TokenShard(const std::string& path) : file_(path) {
  const auto bytes = static_cast<int64_t>(file_.bytes().size());
  if (bytes < kHeaderBytes) {
    throw Error(fmt::format("{}: not a token file: expected a header of {} bytes, found {} bytes",
                            path, kHeaderBytes, bytes));
  }
  Header header;
  std::memcpy(header.data(), file_.bytes().data(), sizeof(header));
  const Format& format = FormatOf(path, header);
  type_ = format.type;
  size_ = header[2];
  if (size_ < 0) {
    throw Error(
        fmt::format("{}: expected a number of tokens in the header, found {}", path, size_));
  }
  const int64_t expected = kHeaderBytes + size_ * TokenSize(type_);
  if (bytes != expected) {
    throw Error(fmt::format(
        "{}: the header announces {} tokens, so expected {} bytes, found {} bytes ({} tokens)",
        path, size_, expected, bytes, (bytes - kHeaderBytes) / TokenSize(type_)));
  }
}

bool TokenShard::HasMagic(const std::string& path) {
  const std::optional<int32_t> magic = LeadingInt32(path);
  return std::any_of(std::begin(kFormats), std::end(kFormats),
                     [magic](const Format& format) { return format.magic == magic; });
}

int64_t TokenShard::Read(int64_t begin, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  if (begin < 0 || count > size_ - begin) {
    throw Error(fmt::format("{}: cannot read tokens {} to {}: the file has {}", path(), begin,
                            begin + count, size_));
  }
  if (count == 0) return -1;
  const std::byte* tokens = file_.bytes().data() + kHeaderBytes;
  if (type_ == TokenType::kUint16) {
    return Widen(reinterpret_cast<const uint16_t*>(tokens) + begin, out);
  }
  return Widen(reinterpret_cast<const uint32_t*>(tokens) + begin, out);
}

TokenShardWriter::TokenShardWriter(const std::string& path, TokenType type)
    : file_(path), type_(type) {
  const Header blank{};
  file_.Write(std::as_bytes(std::span(blank)));
}

void TokenShardWriter::Append(std::span<const int32_t> tokens) {
  constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
  if (static_cast<int64_t>(tokens.size()) > kMostTokens - size_) {
    throw Error(fmt::format("{}: a token file holds at most {} tokens; write several files", path(),
                            kMostTokens));
  }
  const int32_t limit = type_ == TokenType::kUint16 ? 65535 : std::numeric_limits<int32_t>::max();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] > limit) {
      throw Error(fmt::format("{}: token {} at position {} does not fit: expected 0 to {}", path(),
                              tokens[i], size_ + static_cast<int64_t>(i), limit));
    }
  }
  if (type_ == TokenType::kUint16) {
    const std::vector<uint16_t> narrow(tokens.begin(), tokens.end());
    file_.Write(std::as_bytes(std::span(narrow)));
  } else {
    file_.Write(std::as_bytes(tokens));
  }
  size_ += static_cast<int64_t>(tokens.size());
}

void TokenShardWriter::Commit() {
  const Format& format = kFormats[static_cast<size_t>(type_)];
  const std::array<int32_t, 3> fields = {format.magic, format.version, static_cast<int32_t>(size_)};
  file_.Overwrite(0, std::as_bytes(std::span(fields)));
  file_.Commit();
}

}  // namespace infini_train
