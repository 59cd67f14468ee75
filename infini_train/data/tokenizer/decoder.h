#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "infini_train/core/json/json_node.h"

namespace infini_train {

/// Turns tokens back into text, as the `decoder` of a tokenizer.json says. Each token stands for
/// fixed bytes, whatever its neighbours; only the start of the text may be stripped.
class Decoder {
 public:
  /// Reads ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip and a Sequence of them in an
  /// order in which a token's bytes depend on the token alone: ByteFallback after what replaces,
  /// Strip after Fuse. Without a decoder tokens are ByteLevel's if `byte_level`, and otherwise text
  /// as they are.
  Decoder(const JsonNode& node, bool byte_level);

  /// The bytes of a token of the model's vocabulary.
  std::string BytesOf(std::string_view token) const;

  /// Whether tokens are ByteLevel's.
  bool byte_level() const { return byte_level_; }

  /// A text that starts with this many of `strip_character` loses up to as many of them.
  size_t strip_count() const { return strip_count_; }
  const std::string& strip_character() const { return strip_character_; }

 private:
  void Add(const JsonNode& node);

  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fused_ = false;
  std::vector<std::pair<std::string, std::string>> replacements_;
  size_t strip_count_ = 0;
  std::string strip_character_;
};

}  // namespace infini_train
