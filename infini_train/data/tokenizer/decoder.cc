#include "infini_train/data/tokenizer/decoder.h"

#include <fmt/format.h>

#include <optional>

#include "infini_train/core/error.h"
#include "infini_train/data/tokenizer/byte_alphabet.h"
#include "infini_train/data/tokenizer/metaspace.h"
#include "infini_train/data/tokenizer/normalizer.h"

namespace infini_train {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

// The byte of a token <0x0A>.
std::optional<char> FallbackByte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  int byte = 0;
  for (const char c : token.substr(3, 2)) {
    const std::string_view digits = "0123456789ABCDEF";
    const size_t digit = digits.find(c >= 'a' && c <= 'f' ? static_cast<char>(c - 0x20) : c);
    if (digit == std::string_view::npos) return std::nullopt;
    byte = byte * 16 + static_cast<int>(digit);
  }
  return static_cast<char>(byte);
}

}  // namespace

Decoder::Decoder(const JsonNode& node, bool byte_level) {
  if (node.is_null()) {
    byte_level_ = byte_level;
    return;
  }
  if (node.Type({"ByteLevel", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip",
                 "Sequence"}) != "Sequence") {
    Add(node);
    return;
  }
  const JsonNode list = node.Required("decoders");
  constexpr size_t kMostParts = 8;
  if (list.Size() > kMostParts) list.FailExpected("an array of at most 8");
  for (size_t i = 0; i < list.Size(); ++i)
    Add(list.At(i));
}

void Decoder::Add(const JsonNode& node) {
  const std::string& type =
      node.Type({"ByteLevel", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"});
  const bool strips = type == "Strip" || type == "Metaspace";
  if (type == "Strip" && !fused_) node.Fail("expected Fuse before Strip");
  if (strips && strip_count_ > 0) node.Fail("expected one part that strips");
  if (fused_ && type != "Strip" && type != "Fuse") {
    node.Fail(fmt::format("expected {} before Fuse", type));
  }
  if (byte_fallback_ && (type == "Replace" || type == "Metaspace")) {
    node.Fail(fmt::format("expected {} before ByteFallback", type));
  }
  if (type == "ByteLevel") {
    byte_level_ = true;
  } else if (type == "ByteFallback") {
    byte_fallback_ = true;
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Metaspace") {
    const Metaspace settings(node);
    replacements_.emplace_back(settings.replacement, " ");
    strip_count_ = settings.prefix == Metaspace::Prefix::kNever ? 0 : 1;
    strip_character_.assign(1, ' ');
  } else if (type == "Replace") {
    const JsonNode content = node.Required("content");
    if (content.String().size() > 16) content.FailExpected("at most 16 bytes");
    replacements_.emplace_back(node.Required("pattern").Required("String").String(),
                               content.String());
  } else {
    node.Required("stop").Index(1);
    strip_count_ = static_cast<size_t>(node.Required("start").Index(1024));
    strip_character_ = node.Required("content").String();
    if (strip_character_.empty()) node.Required("content").FailExpected("a character");
  }
}

std::string Decoder::BytesOf(std::string_view token) const {
  std::string text(token);
  for (const auto& [pattern, content] : replacements_) {
    ReplaceAll(text, pattern, content);
    if (text.size() > kMostBytes) {
      throw Error(
          fmt::format("a token decodes to {} bytes: expected at most {}", text.size(), kMostBytes));
    }
  }
  if (byte_fallback_) {
    if (const auto byte = FallbackByte(text)) return std::string(1, *byte);
  }
  if (byte_level_) {
    if (auto bytes = BytesOfToken(text)) return *std::move(bytes);
  }
  return text;
}

}  // namespace infini_train
