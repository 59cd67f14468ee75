#include "infini_train/data/tokenizer/pre_tokenizer.h"

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "infini_train/core/regex/regex.h"
#include "infini_train/data/tokenizer/known_patterns.h"
#include "infini_train/data/tokenizer/metaspace.h"
#include "infini_train/data/unicode/unicode.h"

namespace infini_train {
namespace {

void TakeUnlessEmpty(std::string_view piece, PieceSink& sink) {
  if (!piece.empty()) sink.Take(piece);
}

// What a Split does with the text that matches and the text between matches.
enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Receives alternating stretches in order and passes on the pieces that a behavior makes of them.
// Stretches are adjacent parts of one text, so that merging them is arithmetic.
class Joiner {
 public:
  Joiner(Behavior behavior, PieceSink& sink) : behavior_(behavior), sink_(sink) {}

  void Take(std::string_view part, bool is_match) {
    if (part.empty()) return;
    switch (behavior_) {
      case Behavior::kIsolated:
        sink_.Take(part);
        return;
      case Behavior::kRemoved:
        if (!is_match) sink_.Take(part);
        return;
      case Behavior::kMergedWithPrevious:
        Join(part, is_match, is_match && !last_is_match_);
        return;
      case Behavior::kMergedWithNext:
        Join(part, is_match, !is_match && last_is_match_);
        return;
      case Behavior::kContiguous:
        Join(part, is_match, is_match == last_is_match_);
        return;
    }
  }

  void Finish() { TakeUnlessEmpty(pending_, sink_); }

 private:
  void Join(std::string_view part, bool is_match, bool to_pending) {
    if (to_pending && !pending_.empty()) {
      pending_ = {pending_.data(), pending_.size() + part.size()};
    } else {
      TakeUnlessEmpty(pending_, sink_);
      pending_ = part;
    }
    last_is_match_ = is_match;
  }

  Behavior behavior_;
  PieceSink& sink_;
  std::string_view pending_;
  bool last_is_match_ = false;
};

// Cuts text at the matches of a regular expression or of a fixed string.
class SplitAtMatches : public PreTokenizer {
 public:
  SplitAtMatches(Regex regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  SplitAtMatches(std::string literal, Behavior behavior, bool invert)
      : literal_(std::move(literal)), behavior_(behavior), invert_(invert) {}

  void Split(std::string_view text, TextPlace, PieceSink& sink) const override {
    Joiner joiner(behavior_, sink);
    while (!text.empty()) {
      // A byte that is not UTF-8 matches nothing.
      const size_t size = regex_ ? unicode::WellFormedPrefix(text) : text.size();
      if (size > 0) {
        regex_ ? SplitByRegex(text.substr(0, size), joiner)
               : SplitByLiteral(text.substr(0, size), joiner);
      }
      text.remove_prefix(size);
      if (text.empty()) break;
      joiner.Take(text.substr(0, 1), invert_);
      text.remove_prefix(1);
    }
    joiner.Finish();
  }

 private:
  void SplitByRegex(std::string_view text, Joiner& joiner) const {
    size_t taken = 0, begin = 0, end = 0;
    for (size_t from = 0; from <= text.size() && regex_->Find(text, from, begin, end);) {
      joiner.Take(text.substr(taken, begin - taken), invert_);
      joiner.Take(text.substr(begin, end - begin), !invert_);
      taken = end;
      from = end;
      if (begin == end) {  // an empty match: look again one character further
        if (end == text.size()) break;
        from += unicode::Decode(text.data() + end, text.data() + text.size()).size;
      }
    }
    joiner.Take(text.substr(taken), invert_);
  }

  void SplitByLiteral(std::string_view text, Joiner& joiner) const {
    size_t taken = 0;
    if (!literal_.empty()) {
      for (size_t found = text.find(literal_); found != std::string_view::npos;
           found = text.find(literal_, taken)) {
        joiner.Take(text.substr(taken, found - taken), invert_);
        joiner.Take(text.substr(found, literal_.size()), !invert_);
        taken = found + literal_.size();
      }
    }
    joiner.Take(text.substr(taken), invert_);
  }

  std::optional<Regex> regex_;
  std::string literal_;
  Behavior behavior_;
  bool invert_;
};

// ByteLevel's add_prefix_space: text that does not start with a space gets one, unless it goes on
// where another ended.
class PrefixSpace : public PreTokenizer {
 public:
  explicit PrefixSpace(std::unique_ptr<const PreTokenizer> next) : next_(std::move(next)) {}

  void Split(std::string_view text, TextPlace place, PieceSink& sink) const override {
    std::string prefixed;
    if (!text.empty() && text.front() != ' ' && place != TextPlace::kContinuation) {
      prefixed.reserve(text.size() + 1);
      prefixed.append(1, ' ').append(text);
      text = prefixed;
    }
    if (next_ != nullptr) {
      next_->Split(text, place, sink);
    } else {
      TakeUnlessEmpty(text, sink);
    }
  }

 private:
  std::unique_ptr<const PreTokenizer> next_;
};

// Each piece of the first goes through the second.
class Chain : public PreTokenizer {
 public:
  Chain(std::unique_ptr<const PreTokenizer> first, std::unique_ptr<const PreTokenizer> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  void Split(std::string_view text, TextPlace place, PieceSink& sink) const override {
    Second next(*second_, place, sink);
    first_->Split(text, place, next);
  }

 private:
  class Second : public PieceSink {
   public:
    Second(const PreTokenizer& splitter, TextPlace place, PieceSink& sink)
        : splitter_(splitter), place_(place), sink_(sink) {}
    void Take(std::string_view piece) override {
      splitter_.Split(piece, place_, sink_);
      place_ = TextPlace::kInside;
    }

   private:
    const PreTokenizer& splitter_;
    TextPlace place_;  // of the next piece
    PieceSink& sink_;
  };

  std::unique_ptr<const PreTokenizer> first_;
  std::unique_ptr<const PreTokenizer> second_;
};

Behavior LoadBehavior(const JsonNode& node) {
  static constexpr std::pair<std::string_view, Behavior> kNames[] = {
      {"Isolated", Behavior::kIsolated},
      {"Removed", Behavior::kRemoved},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  for (const auto& [name, behavior] : kNames) {
    if (node.String() == name) return behavior;
  }
  node.FailExpected("one of Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous");
}

std::unique_ptr<const PreTokenizer> LoadSplit(const JsonNode& node) {
  const Behavior behavior = LoadBehavior(node.Required("behavior"));
  const bool invert = node.BoolOr("invert", false);
  const JsonNode pattern = node.Required("pattern");
  const JsonNode literal = pattern.Optional("String");
  if (!literal.is_null()) {
    return std::make_unique<SplitAtMatches>(literal.String(), behavior, invert);
  }
  const JsonNode regex = pattern.Required("Regex");
  // The known expressions match every character, so that nothing is left between matches; with
  // these behaviors each match is then a piece of its own.
  const bool each_match_a_piece = behavior == Behavior::kIsolated && !invert;
  if (each_match_a_piece) {
    if (auto known = MakeKnownSplitter(regex.String())) return known;
  }
  return std::make_unique<SplitAtMatches>(Regex(regex), behavior, invert);
}

std::unique_ptr<const PreTokenizer> LoadByteLevel(const JsonNode& node) {
  std::unique_ptr<const PreTokenizer> splitter;
  if (node.BoolOr("use_regex", true)) splitter = MakeKnownSplitter(kGpt2Pattern);
  if (node.BoolOr("add_prefix_space", true)) {
    splitter = std::make_unique<PrefixSpace>(std::move(splitter));
  }
  return splitter;
}

}  // namespace

LoadedPreTokenizer LoadPreTokenizer(const JsonNode& node) {
  LoadedPreTokenizer loaded;
  if (node.is_null()) return loaded;
  const auto append = [&loaded](const JsonNode& part) {
    // A ByteLevel changes the alphabet, so that what follows would see other characters.
    if (loaded.byte_level) part.Fail("expected nothing after ByteLevel");
    const std::string& type = part.Type({"ByteLevel", "Metaspace", "Split"});
    loaded.byte_level = type == "ByteLevel";
    auto splitter = loaded.byte_level     ? LoadByteLevel(part)
                    : type == "Metaspace" ? MakeMetaspace(Metaspace(part))
                                          : LoadSplit(part);
    if (splitter == nullptr) return;
    loaded.splitter =
        loaded.splitter == nullptr
            ? std::move(splitter)
            : std::make_unique<Chain>(std::move(loaded.splitter), std::move(splitter));
  };
  if (node.Type({"ByteLevel", "Metaspace", "Split", "Sequence"}) != "Sequence") {
    append(node);
    return loaded;
  }
  const JsonNode list = node.Required("pretokenizers");
  constexpr size_t kMostParts = 64;
  if (list.Size() > kMostParts) list.FailExpected("an array of at most 64");
  for (size_t i = 0; i < list.Size(); ++i)
    append(list.At(i));
  return loaded;
}

std::unique_ptr<const PreTokenizer> MakeRegexSplitter(const std::string& pattern) {
  return std::make_unique<SplitAtMatches>(Regex(pattern, ""), Behavior::kIsolated, false);
}

}  // namespace infini_train
