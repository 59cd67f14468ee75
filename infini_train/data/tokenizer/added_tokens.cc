#include "infini_train/data/tokenizer/added_tokens.h"

#include <algorithm>

#include "infini_train/data/tokenizer/bpe.h"
#include "infini_train/data/unicode/unicode.h"

namespace infini_train {
namespace {

// Looking for tokens costs at most this much for each byte of text.
constexpr size_t kMostContent = 1024;

bool IsContinuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

size_t SpacesBefore(std::string_view text, size_t end) {
  size_t begin = end;
  while (begin > 0) {
    size_t start = begin - 1;
    while (start > 0 && begin - start < 4 && IsContinuation(text[start]))
      --start;
    const auto character = unicode::Decode(text.data() + start, text.data() + begin);
    if (character.size != begin - start ||
        unicode::ClassOf(character.code_point) != unicode::CharClass::kSpace) {
      break;
    }
    begin = start;
  }
  return begin;
}

size_t SpacesAfter(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const auto character = unicode::Decode(text.data() + begin, text.data() + text.size());
    if (unicode::ClassOf(character.code_point) != unicode::CharClass::kSpace) break;
    begin += character.size;
  }
  return begin;
}

}  // namespace

std::vector<AddedToken> LoadAddedTokens(const JsonNode& node) {
  std::vector<AddedToken> tokens;
  if (node.is_null()) return tokens;
  for (size_t i = 0; i < node.Size(); ++i) {
    const JsonNode entry = node.At(i);
    AddedToken token;
    token.content = entry.Required("content").String();
    token.id = static_cast<int32_t>(entry.Required("id").Index(kMostTokens));
    token.special = entry.BoolOr("special", false);
    token.lstrip = entry.BoolOr("lstrip", false);
    token.rstrip = entry.BoolOr("rstrip", false);
    token.single_word = entry.BoolOr("single_word", false);
    token.normalized = entry.BoolOr("normalized", !token.special);
    if (token.content.size() > kMostContent) {
      entry.Required("content").FailExpected("at most 1024 bytes");
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedTokenSplitter::AddedTokenSplitter(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), nodes_(1) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const AddedToken& token = tokens_[t];
    starts_[static_cast<unsigned char>(token.content.front())] = true;
    uint32_t node = 0;
    for (const char c : token.content) {
      const auto byte = static_cast<unsigned char>(c);
      auto& children = nodes_[node].children;
      const auto place =
          std::lower_bound(children.begin(), children.end(), std::pair(byte, uint32_t{0}));
      if (place != children.end() && place->first == byte) {
        node = place->second;
      } else {
        const auto next = static_cast<uint32_t>(nodes_.size());
        children.insert(place, {byte, next});
        nodes_.emplace_back();
        node = next;
      }
    }
    if (nodes_[node].token < 0) nodes_[node].token = static_cast<int32_t>(t);
    if (token.single_word && !word_) word_.emplace(R"(\w)", "");
  }
}

const AddedToken* AddedTokenSplitter::LongestAt(std::string_view text, size_t at) const {
  int32_t longest = -1;
  uint32_t node = 0;
  for (; at < text.size(); ++at) {
    const auto& children = nodes_[node].children;
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto place =
        std::lower_bound(children.begin(), children.end(), std::pair(byte, uint32_t{0}));
    if (place == children.end() || place->first != byte) break;
    node = place->second;
    if (nodes_[node].token >= 0) longest = nodes_[node].token;
  }
  return longest < 0 ? nullptr : &tokens_[static_cast<size_t>(longest)];
}

bool AddedTokenSplitter::Find(std::string_view text, size_t from, size_t taken,
                              Found& found) const {
  if (tokens_.empty()) return false;
  for (size_t at = from; at < text.size(); ++at) {
    if (!starts_[static_cast<unsigned char>(text[at])]) continue;
    const AddedToken* const token = LongestAt(text, at);
    if (token == nullptr) continue;
    const size_t end = at + token->content.size();
    if (token->single_word && IsInsideWord(text, at, end)) {
      at = end - 1;
      continue;
    }
    found.id = token->id;
    found.next = end;
    found.begin = token->lstrip ? std::max(SpacesBefore(text, at), taken) : at;
    found.end = token->rstrip ? SpacesAfter(text, end) : end;
    return true;
  }
  return false;
}

bool AddedTokenSplitter::IsInsideWord(std::string_view text, size_t begin, size_t end) const {
  const auto is_word = [this](std::string_view character) {
    size_t match_begin = 0, match_end = 0;
    return unicode::WellFormedPrefix(character) == character.size() &&
           word_->Find(character, 0, match_begin, match_end);
  };
  if (begin > 0) {
    size_t start = begin - 1;
    while (start > 0 && begin - start < 4 && IsContinuation(text[start]))
      --start;
    if (is_word(text.substr(start, begin - start))) return true;
  }
  if (end == text.size()) return false;
  const auto next = unicode::Decode(text.data() + end, text.data() + text.size());
  return is_word(text.substr(end, next.size));
}

}  // namespace infini_train
