#include "infini_train/data/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "infini_train/data/tokenizer/byte_alphabet.h"
#include "infini_train/data/unicode/unicode.h"

namespace infini_train {
namespace {

// SentencePiece's space, U+2581.
constexpr std::string_view kMark = "\u2581";

}  // namespace

BpeModel::BpeModel(const JsonNode& node, bool byte_level) : byte_level_(byte_level) {
  node.Type({"BPE"});
  const JsonNode dropout = node.Optional("dropout");
  if (!dropout.is_null() && dropout.value() != 0.0) dropout.FailExpected("no dropout");
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonNode affix = node.Optional(name);
    if (!affix.is_null() && !affix.String().empty()) affix.FailExpected("none");
  }
  ignore_merges_ = node.BoolOr("ignore_merges", false);
  fuse_unknown_ = node.BoolOr("fuse_unk", false);
  LoadVocabulary(node.Required("vocab"));
  LoadUnknown(node);
  LoadMerges(node.Required("merges"));
}

std::optional<int32_t> BpeModel::Find(std::string_view token) const {
  const auto found = vocabulary_.find(std::string(token));
  if (found == vocabulary_.end()) return std::nullopt;
  return found->second;
}

void BpeModel::LoadVocabulary(const JsonNode& node) {
  node.ForEachMember([this](const std::string& token, const JsonNode& value) {
    const auto id = static_cast<int32_t>(value.Index(kMostTokens));
    const auto place = static_cast<size_t>(id);
    if (place >= tokens_.size()) tokens_.resize(place + 1, nullptr);
    if (tokens_[place] != nullptr) {
      value.Fail(fmt::format("expected an id of its own, found {}, which is that of \"{}\"", id,
                             *tokens_[place]));
    }
    tokens_[place] = &vocabulary_.emplace(token, id).first->first;
  });
  byte_ids_.assign(byte_level_ ? 256 : 128, -1);
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    std::string character;
    unicode::Append(character, byte_level_ ? CharacterOfByte(static_cast<uint8_t>(byte))
                                           : static_cast<uint32_t>(byte));
    byte_ids_[byte] = Find(character).value_or(-1);
  }
  if (!ignore_merges_) return;
  for (const auto& [token, id] : vocabulary_) {
    if (!byte_level_) {
      pieces_.emplace(token, id);
    } else if (auto bytes = BytesOfToken(token)) {
      pieces_.emplace(*std::move(bytes), id);
    }
  }
}

void BpeModel::LoadUnknown(const JsonNode& node) {
  const JsonNode unknown = node.Optional("unk_token");
  if (!unknown.is_null()) {
    const auto id = Find(unknown.String());
    if (!id) unknown.FailExpected("a token of the vocabulary");
    unknown_id_ = *id;
  }
  if (!node.BoolOr("byte_fallback", false)) return;
  fallback_ids_.assign(256, -1);
  for (size_t byte = 0; byte < 256; ++byte) {
    fallback_ids_[byte] = Find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
}

void BpeModel::LoadMerges(const JsonNode& node) {
  const size_t count = node.Size();
  merges_.Reserve(count);
  std::string left, right;
  // Whether a rule joins the end of a word and the mark of the next.
  bool crossed = false;
  for (size_t i = 0; i < count; ++i) {
    const JsonNode rule = node.At(i);
    if (rule.value().is_array()) {
      const auto& parts = rule.value();
      if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string()) {
        rule.FailExpected("two strings");
      }
      left = parts[0].get_ref<const std::string&>();
      right = parts[1].get_ref<const std::string&>();
    } else {
      if (!rule.value().is_string()) rule.FailExpected("\"left right\" or [\"left\", \"right\"]");
      const std::string& text = rule.String();
      if (text.starts_with("#version")) continue;
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        rule.FailExpected("two tokens with one space between them");
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    }
    const auto id_of = [&](const std::string& token) {
      const auto found = vocabulary_.find(token);
      if (found == vocabulary_.end()) {
        rule.Fail(fmt::format("\"{}\" is not in the vocabulary", token));
      }
      return found->second;
    };
    const int32_t left_id = id_of(left), right_id = id_of(right);
    crossed = crossed || (right.starts_with(kMark) && !left.ends_with(kMark));
    merges_.Add(left_id, right_id, {static_cast<uint32_t>(i), id_of(left += right)});
  }
  // Rules reach only as far as they join, so that what none joins can be encoded in parts.
  if (!byte_level_ && !ignore_merges_ && !crossed && Find(kMark)) mark_ = kMark;
}

void BpeModel::Encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  while (!mark_.empty()) {
    size_t next = 0;
    while (piece.substr(next).starts_with(mark_))
      next += mark_.size();
    next = piece.find(mark_, next);
    if (next == std::string_view::npos) break;
    EncodeWord(piece.substr(0, next), scratch, ids);
    piece.remove_prefix(next);
  }
  EncodeWord(piece, scratch, ids);
}

void BpeModel::EncodeWord(std::string_view piece, Scratch& scratch,
                          std::vector<int32_t>& ids) const {
  const auto through = [&](auto& cache) {
    const uint64_t hash = HashPiece(piece);
    const auto known = cache.Find(piece, hash);
    if (!known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return;
    }
    const size_t before = ids.size();
    EncodeUncached(piece, scratch, ids);
    cache.Store(piece, hash, std::span(ids).subspan(before));
  };
  if (scratch.words.Fits(piece)) {
    through(scratch.words);
  } else if (scratch.phrases.Fits(piece)) {
    through(scratch.phrases);
  } else {
    EncodeUncached(piece, scratch, ids);
  }
}

void BpeModel::EncodeUncached(std::string_view piece, Scratch& scratch,
                              std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    const auto whole = pieces_.find(std::string(piece));
    if (whole != pieces_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  std::vector<int32_t>& symbols = scratch.symbols;
  symbols.clear();
  Symbolize(piece, symbols);
  merges_.Apply(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void BpeModel::Symbolize(std::string_view piece, std::vector<int32_t>& symbols) const {
  if (!byte_level_) return SymbolizeCharacters(piece, symbols);
  bool after_unknown = false;
  for (const char c : piece) {
    int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    const bool unknown = id < 0;
    if (unknown) {
      id = fuse_unknown_ && after_unknown ? -1 : unknown_id_;
    }
    if (id >= 0) symbols.push_back(id);
    after_unknown = unknown;
  }
}

void BpeModel::SymbolizeCharacters(std::string_view piece, std::vector<int32_t>& symbols) const {
  bool after_unknown = false;
  const char* const end = piece.data() + piece.size();
  for (const char* p = piece.data(); p < end;) {
    const auto first = static_cast<unsigned char>(*p);
    const size_t size = unicode::Decode(p, end).size;
    const std::string_view character(p, size);
    p += size;
    const std::optional<int32_t> known =
        first < 128 ? (byte_ids_[first] < 0 ? std::nullopt : std::optional(byte_ids_[first]))
                    : Find(character);
    if (known) {
      symbols.push_back(*known);
      after_unknown = false;
      continue;
    }
    const auto fallback = [this](char c) { return fallback_ids_[static_cast<unsigned char>(c)]; };
    if (!fallback_ids_.empty() &&
        std::all_of(character.begin(), character.end(), [&](char c) { return fallback(c) >= 0; })) {
      for (const char c : character)
        symbols.push_back(fallback(c));
      after_unknown = false;
      continue;
    }
    if (unknown_id_ >= 0 && !(fuse_unknown_ && after_unknown)) symbols.push_back(unknown_id_);
    after_unknown = true;
  }
}

}  // namespace infini_train
