#pragma once

#include <memory>
#include <string>

#include "infini_train/core/json/json_node.h"
#include "infini_train/data/tokenizer/pre_tokenizer.h"

namespace infini_train {

/// The settings of a `Metaspace`, which writes spaces as another character as SentencePiece does
/// (Kudo and Richardson, 2018).
struct Metaspace {
  enum class Prefix : std::uint8_t { kAlways, kFirst, kNever };

  explicit Metaspace(const JsonNode& node);

  std::string replacement;  ///< a character
  Prefix prefix = Prefix::kAlways;
  bool split = true;
};

/// Replaces spaces, puts a replacement in front of text without one (of every stretch, of the first
/// of a text, or of none) and, if it splits, cuts in front of each replacement.
std::unique_ptr<const PreTokenizer> MakeMetaspace(Metaspace settings);

}  // namespace infini_train
