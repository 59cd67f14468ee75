#include "infini_train/data/tokenizer/metaspace.h"

#include <utility>

#include "infini_train/data/tokenizer/normalizer.h"
#include "infini_train/data/unicode/unicode.h"

namespace infini_train {
namespace {

class MetaspaceSplitter : public PreTokenizer {
 public:
  explicit MetaspaceSplitter(Metaspace settings) : settings_(std::move(settings)) {}

  void Split(std::string_view text, TextPlace place, PieceSink& sink) const override {
    if (text.empty()) return;
    const std::string& mark = settings_.replacement;
    std::string marked(text);
    ReplaceAll(marked, " ", mark);
    if (HasPrefix(place) && !marked.starts_with(mark)) marked.insert(0, mark);
    std::string_view left = marked;
    while (settings_.split) {
      const size_t next = left.find(mark, left.starts_with(mark) ? mark.size() : 0);
      if (next == std::string_view::npos) break;
      sink.Take(left.substr(0, next));
      left.remove_prefix(next);
    }
    sink.Take(left);
  }

 private:
  bool HasPrefix(TextPlace place) const {
    switch (settings_.prefix) {
      case Metaspace::Prefix::kAlways:
        return place != TextPlace::kContinuation;
      case Metaspace::Prefix::kFirst:
        return place == TextPlace::kStart;
      case Metaspace::Prefix::kNever:
        return false;
    }
    return false;
  }

  Metaspace settings_;
};

}  // namespace

Metaspace::Metaspace(const JsonNode& node) : replacement(node.Required("replacement").String()) {
  const size_t size = unicode::WellFormedPrefix(replacement);
  if (replacement.empty() || size != replacement.size() ||
      unicode::Decode(replacement.data(), replacement.data() + size).size != size) {
    node.Required("replacement").FailExpected("one character");
  }
  split = node.BoolOr("split", true);
  const bool has_prefix = node.BoolOr("add_prefix_space", true);
  if (!has_prefix) prefix = Prefix::kNever;
  const JsonNode scheme = node.Optional("prepend_scheme");
  if (scheme.is_null()) return;
  if (scheme.String() == "always") {
    prefix = Prefix::kAlways;
  } else if (scheme.String() == "first") {
    prefix = Prefix::kFirst;
  } else if (scheme.String() == "never") {
    prefix = Prefix::kNever;
  } else {
    scheme.FailExpected("one of always, first, never");
  }
  if (!has_prefix && prefix != Prefix::kNever) {
    scheme.FailExpected("\"never\", since add_prefix_space is false");
  }
}

std::unique_ptr<const PreTokenizer> MakeMetaspace(Metaspace settings) {
  return std::make_unique<MetaspaceSplitter>(std::move(settings));
}

}  // namespace infini_train
