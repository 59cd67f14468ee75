#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "infini_train/core/json/json_node.h"
#include "infini_train/data/tokenizer/text_place.h"

namespace infini_train {

/// Takes the pieces of a text one by one, in order. A piece is valid during the call.
class PieceSink {
 public:
  virtual ~PieceSink() = default;
  virtual void Take(std::string_view piece) = 0;
};

/// Cuts text into the pieces that a model encodes on their own, as the `pre_tokenizer` of a
/// tokenizer.json says. Pieces are never empty.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void Split(std::string_view text, TextPlace place, PieceSink& sink) const = 0;
};

struct LoadedPreTokenizer {
  std::unique_ptr<const PreTokenizer> splitter;  ///< null: the whole text is one piece
  bool byte_level = false;                       ///< the model's characters stand for bytes
};

/// Reads ByteLevel, Metaspace, Split and a Sequence of them, of which ByteLevel must come last. The
/// bytes are not mapped to ByteLevel's characters: the model does that for its vocabulary once.
LoadedPreTokenizer LoadPreTokenizer(const JsonNode& node);

/// For tests: the splitter for a regular expression, through PCRE2 even if it is one of the
/// well-known ones that have a hand-written matcher.
std::unique_ptr<const PreTokenizer> MakeRegexSplitter(const std::string& pattern);

/// The hand-written splitter for a well-known regular expression, or null.
std::unique_ptr<const PreTokenizer> MakeKnownSplitter(std::string_view pattern);

}  // namespace infini_train
