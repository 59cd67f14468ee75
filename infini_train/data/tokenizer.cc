#include "infini_train/data/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/data/tokenizer/byte_tokenizer.h"
#include "infini_train/data/tokenizer/hf_tokenizer.h"
#include "infini_train/data/tokenizer/llmc_tokenizer.h"
#include "infini_train/data/unicode/unicode.h"

namespace infini_train {
namespace {

// Whether `bytes` is the beginning of a character that more bytes could complete.
bool IsIncompleteCharacter(std::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes.front());
  const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || bytes.size() >= size) return false;
  // Some continuation makes it well-formed if and only if one of these two does.
  for (const char filler : {'\x80', '\xBF'}) {
    std::string completed(bytes);
    completed.resize(size, filler);
    if (unicode::WellFormedPrefix(completed) == size) return true;
  }
  return false;
}

// How many bytes, at least one, belong to the broken character at the front: the longest beginning
// of a character (The Unicode Standard, section 3.9, "substitution of maximal subparts").
size_t BrokenCharacterSize(std::string_view bytes) {
  size_t size = 1;
  while (size < bytes.size() && IsIncompleteCharacter(bytes.substr(0, size + 1)))
    ++size;
  return size;
}

}  // namespace

Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = before_text_;
  EncodeTo(text, ids);
  if (add_special_tokens) ids.insert(ids.end(), after_text_.begin(), after_text_.end());
  return ids;
}

void Tokenizer::EncodeContinuationTo(std::string_view text, std::vector<int32_t>& ids) const {
  EncodeTo(text, ids);
}

size_t Tokenizer::Strip::Apply(std::string& text, size_t taken) const {
  size_t size = 0;
  for (; taken < count && std::string_view(text).substr(size).starts_with(character); ++taken)
    size += character.size();
  text.erase(0, size);
  return taken;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string text;
  for (const int32_t id : ids) {
    if (!(skip_special_tokens && IsSpecial(id))) text += TokenBytes(id);
  }
  strip_.Apply(text, 0);
  return text;
}

void Tokenizer::Save(const std::string& folder) const {
  for (const auto& [name, content] : files_) {
    WriteFileAtomically((std::filesystem::path(folder) / name).string(), content);
  }
}

std::shared_ptr<const Tokenizer> LoadTokenizer(const std::string& path_or_name) {
  if (path_or_name == "bytes") return std::make_shared<const ByteTokenizer>();
  std::filesystem::path path(path_or_name);
  if (IsFolder(path)) path /= "tokenizer.json";
  if (IsLlmcTokenizer(path.string())) return LoadLlmcTokenizer(path.string());
  return LoadHfTokenizer(path.string());
}

StreamingDecoder::StreamingDecoder(std::shared_ptr<const Tokenizer> tokenizer,
                                   bool skip_special_tokens, bool is_continuation)
    : tokenizer_(std::move(tokenizer)),
      skip_special_tokens_(skip_special_tokens),
      at_start_(!is_continuation) {}

std::string StreamingDecoder::Push(int32_t id) {
  if (skip_special_tokens_ && tokenizer_->IsSpecial(id)) return "";
  pending_ += tokenizer_->TokenBytes(id);
  return Release(/*at_end=*/false);
}

std::string StreamingDecoder::Finish() {
  std::string text = Release(/*at_end=*/true);
  pending_.clear();
  stripped_ = 0;
  at_start_ = true;
  return text;
}

std::string StreamingDecoder::Release(bool at_end) {
  if (at_start_) {
    const Tokenizer::Strip& strip = tokenizer_->strip();
    stripped_ = strip.Apply(pending_, stripped_);
    const bool undecided = stripped_ < strip.count && strip.character.starts_with(pending_);
    if (undecided && !at_end) return "";
    at_start_ = pending_.empty();
  }
  std::string text;
  std::string_view left = pending_;
  while (!left.empty()) {
    const size_t size = unicode::WellFormedPrefix(left);
    text.append(left.substr(0, size));
    left.remove_prefix(size);
    if (left.empty() || (!at_end && IsIncompleteCharacter(left))) break;
    unicode::Append(text, 0xFFFD);
    left.remove_prefix(BrokenCharacterSize(left));
  }
  pending_.erase(0, pending_.size() - left.size());
  return text;
}

}  // namespace infini_train
