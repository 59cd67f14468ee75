#include "infini_train/data/tokenizer/hf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/core/json/untrusted_json.h"
#include "infini_train/data/tokenizer/byte_tokenizer.h"
#include "infini_train/data/tokenizer/decoder.h"
#include "infini_train/data/tokenizer/known_patterns.h"

namespace infini_train {
namespace {

using Json = nlohmann::json;

// Whether the text can be cut between the end of a line and a letter: the pre-tokenizer has one of
// the known expressions, all of which do, and neither normalizer nor added tokens reach across.
bool CutsAtLines(const JsonNode& file, const std::vector<AddedToken>& added) {
  const JsonNode normalizer = file.Optional("normalizer");
  if (!normalizer.is_null() && normalizer.StringOr("type", "") != "NFC") return false;
  for (const AddedToken& token : added) {
    if (token.lstrip || token.rstrip || token.content.find('\n') != std::string::npos) return false;
  }
  const JsonNode pre_tokenizer = file.Optional("pre_tokenizer");
  if (pre_tokenizer.is_null()) return false;
  const auto cuts = [](const JsonNode& part) {
    if (part.StringOr("type", "") == "ByteLevel") {
      return part.BoolOr("use_regex", true) && !part.BoolOr("add_prefix_space", true);
    }
    if (part.BoolOr("invert", false) || part.StringOr("behavior", "") != "Isolated") return false;
    const JsonNode pattern = part.Required("pattern").Optional("Regex");
    return !pattern.is_null() &&
           (pattern.String() == kGpt2Pattern || pattern.String() == kLlama3Pattern ||
            pattern.String() == kQwenPattern);
  };
  if (pre_tokenizer.StringOr("type", "") != "Sequence") return cuts(pre_tokenizer);
  // After the first part has cut there, the others see the sides on their own.
  const JsonNode list = pre_tokenizer.Required("pretokenizers");
  if (list.Size() == 0 || !cuts(list.At(0))) return false;
  for (size_t i = 1; i < list.Size(); ++i) {
    if (list.At(i).StringOr("type", "") == "Metaspace") return false;
    if (list.At(i).BoolOr("add_prefix_space", list.At(i).StringOr("type", "") == "ByteLevel")) {
      return false;
    }
  }
  return true;
}

// The place of a section of a text that itself has a place.
TextPlace PlaceOf(std::string_view section, std::string_view text, TextPlace place) {
  return section.data() == text.data() ? place : TextPlace::kInside;
}

}  // namespace

// Scratch of a thread for the time of one call.
class HfTokenizer::ScratchLease {
 public:
  explicit ScratchLease(const HfTokenizer& owner) : owner_(owner) {
    const std::lock_guard lock(owner_.mutex_);
    if (!owner_.idle_.empty()) {
      scratch_ = std::move(owner_.idle_.back());
      owner_.idle_.pop_back();
      return;
    }
    scratch_ = std::make_unique<BpeModel::Scratch>();
    // Room for all of them: coming back must not fail.
    owner_.idle_.reserve(++owner_.num_scratches_);
  }
  ~ScratchLease() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_.push_back(std::move(scratch_));
  }
  ScratchLease(const ScratchLease&) = delete;
  ScratchLease& operator=(const ScratchLease&) = delete;

  BpeModel::Scratch& operator*() { return *scratch_; }

 private:
  const HfTokenizer& owner_;
  std::unique_ptr<BpeModel::Scratch> scratch_;
};

HfTokenizer::HfTokenizer(const std::string& path, std::string json) {
  name_ = path;
  const Json document = ParseJson(json, path);
  Load(JsonNode(document, path));
  files_.emplace_back("tokenizer.json", std::move(json));
  LoadEndOfText(std::filesystem::path(path).parent_path().string());
}

HfTokenizer::~HfTokenizer() = default;

void HfTokenizer::Load(const JsonNode& file) {
  normalizer_ = LoadNormalizer(file.Optional("normalizer"));
  LoadedPreTokenizer pre_tokenizer = LoadPreTokenizer(file.Optional("pre_tokenizer"));
  pre_tokenizer_ = std::move(pre_tokenizer.splitter);
  model_.emplace(file.Required("model"), pre_tokenizer.byte_level);
  LoadAdded(file.Optional("added_tokens"));
  LoadTokenBytes(file.Optional("decoder"), pre_tokenizer.byte_level);
  LoadPostProcessor(file.Optional("post_processor"));
  cuts_at_lines_ = CutsAtLines(file, added_);
}

void HfTokenizer::LoadAdded(const JsonNode& node) {
  added_ = LoadAddedTokens(node);
  const auto& tokens = model_->tokens();
  vocab_size_ = static_cast<int64_t>(tokens.size());
  std::unordered_map<int32_t, std::string_view> contents;
  std::vector<AddedToken> in_text, in_normalized;
  for (size_t i = 0; i < added_.size(); ++i) {
    const AddedToken& token = added_[i];
    const auto id = static_cast<size_t>(token.id);
    const auto refuse = [&](std::string_view other) {
      node.At(i).Fail(
          fmt::format("expected an id of its own for \"{}\", found {}, which is that of \"{}\"",
                      token.content, token.id, other));
    };
    if (const auto known = model_->Find(token.content); known && *known != token.id) {
      node.At(i).Fail(fmt::format("expected id {} of \"{}\" in the vocabulary, found {}", *known,
                                  token.content, token.id));
    }
    if (id < tokens.size() && tokens[id] != nullptr && *tokens[id] != token.content) {
      refuse(*tokens[id]);
    }
    const auto [other, is_new] = contents.emplace(token.id, token.content);
    if (!is_new && other->second != token.content) refuse(other->second);
    vocab_size_ = std::max(vocab_size_, int64_t{token.id} + 1);
    if (!token.normalized || normalizer_ == nullptr) {
      in_text.push_back(token);
    } else {
      in_normalized.push_back(token);
      normalizer_->Apply(in_normalized.back().content, TextPlace::kInside);
    }
  }
  if (vocab_size_ == 0) node.Fail("expected at least one token in the vocabulary or here");
  in_text_.emplace(std::move(in_text));
  in_normalized_.emplace(std::move(in_normalized));
  special_.assign(static_cast<size_t>(vocab_size_), 0);
  for (const AddedToken& token : added_) {
    if (token.special) special_[static_cast<size_t>(token.id)] = 1;
  }
}

void HfTokenizer::LoadTokenBytes(const JsonNode& node, bool byte_level) {
  const Decoder decoder(node, byte_level);
  strip_ = {decoder.strip_character(), decoder.strip_count()};
  std::vector<std::optional<std::string>> added(static_cast<size_t>(vocab_size_));
  for (const AddedToken& token : added_) {
    std::string& bytes = added[static_cast<size_t>(token.id)].emplace(token.content);
    // What was found in normalized text, with the mark in front of words, is turned back.
    if (!token.normalized || normalizer_ == nullptr || decoder.byte_level()) continue;
    normalizer_->Apply(bytes, TextPlace::kInside);
    bytes = decoder.BytesOf(bytes);
  }
  const auto& tokens = model_->tokens();
  bytes_begin_.reserve(added.size() + 1);
  for (size_t id = 0; id < added.size(); ++id) {
    bytes_begin_.push_back(bytes_.size());
    if (added[id]) {
      bytes_ += *added[id];
    } else if (id < tokens.size() && tokens[id] != nullptr) {
      bytes_ += decoder.BytesOf(*tokens[id]);
    }
  }
  bytes_begin_.push_back(bytes_.size());
}

void HfTokenizer::LoadPostProcessor(const JsonNode& node) {
  if (node.is_null()) return;
  const std::string& type = node.Type({"ByteLevel", "TemplateProcessing", "Sequence"});
  if (type == "TemplateProcessing") return LoadTemplate(node);
  if (type == "ByteLevel") return;  // concerns offsets only
  const JsonNode list = node.Required("processors");
  for (size_t i = 0; i < list.Size(); ++i) {
    const JsonNode part = list.At(i);
    if (part.Type({"ByteLevel", "TemplateProcessing"}) == "TemplateProcessing") LoadTemplate(part);
  }
}

void HfTokenizer::LoadTemplate(const JsonNode& node) {
  const JsonNode single = node.Required("single");
  const JsonNode special_tokens = node.Optional("special_tokens");
  std::vector<int32_t> before, after;
  bool text_seen = false;
  for (size_t i = 0; i < single.Size(); ++i) {
    const JsonNode part = single.At(i);
    if (!part.Optional("Sequence").is_null()) {
      if (text_seen) part.Fail("expected the text once");
      text_seen = true;
      continue;
    }
    const std::string name = part.Required("SpecialToken").Required("id").String();
    const JsonNode ids = special_tokens.Required(name).Required("ids");
    for (size_t k = 0; k < ids.Size(); ++k) {
      const auto id = static_cast<int32_t>(ids.At(k).Index(vocab_size_));
      (text_seen ? after : before).push_back(id);
    }
  }
  if (!text_seen) single.Fail("expected the text ({\"Sequence\": ...}), found none");
  // A later processor works on the result of the earlier ones.
  before_text_.insert(before_text_.begin(), before.begin(), before.end());
  after_text_.insert(after_text_.end(), after.begin(), after.end());
}

bool HfTokenizer::TokenExists(int64_t id) const {
  return id >= 0 && id < vocab_size_ && !TokenBytes(static_cast<int32_t>(id)).empty();
}

bool HfTokenizer::LoadEosIds(const std::string& path) {
  if (!PathExists(path)) return false;
  const Json document = ParseJson(MappedFile(path).text(), path);
  const JsonNode node = JsonNode(document, path).Optional("eos_token_id");
  if (node.is_null()) return false;
  const auto add = [this](const JsonNode& value) {
    const int64_t id = value.Index(kMostTokens);
    // A model's vocabulary may be larger than the tokenizer's.
    if (TokenExists(id)) eos_ids_.push_back(static_cast<int32_t>(id));
  };
  if (node.value().is_array()) {
    for (size_t i = 0; i < node.Size(); ++i)
      add(node.At(i));
  } else {
    add(node);
  }
  return !eos_ids_.empty();
}

bool HfTokenizer::LoadEosName(const std::string& path) {
  if (!PathExists(path)) return false;
  const std::string content = ReadFile(path);
  files_.emplace_back("tokenizer_config.json", content);
  const Json document = ParseJson(content, path);
  const JsonNode node = JsonNode(document, path).Optional("eos_token");
  if (node.is_null()) return false;
  const auto id =
      Find(node.value().is_object() ? node.Required("content").String() : node.String());
  if (id) eos_ids_.push_back(*id);
  return id.has_value();
}

void HfTokenizer::LoadEndOfText(const std::string& folder) {
  const auto beside = [&folder](const char* name) {
    return (std::filesystem::path(folder) / name).string();
  };
  const bool known =
      LoadEosIds(beside("generation_config.json")) || LoadEosIds(beside("config.json"));
  std::vector<int32_t> by_id = std::exchange(eos_ids_, {});
  LoadEosName(beside("tokenizer_config.json"));  // also carried along
  if (known) eos_ids_ = std::move(by_id);
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>"}) {
    const auto id = Find(name);
    if (eos_ids_.empty() && id) eos_ids_.push_back(*id);
  }
  if (files_.size() == 1) {
    Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
    if (!eos_ids_.empty()) config["eos_token"] = TokenBytes(eos_ids_.front());
    files_.emplace_back("tokenizer_config.json",
                        config.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  if (!before_text_.empty()) {
    document_delimiter_ = before_text_.front();
  } else if (const auto end_of_text = Find("<|endoftext|>")) {
    document_delimiter_ = end_of_text;
  } else if (!eos_ids_.empty()) {
    document_delimiter_ = eos_ids_.front();
  }
}

void HfTokenizer::EncodeTo(std::string_view text, std::vector<int32_t>& ids) const {
  EncodeText(text, TextPlace::kStart, ids);
}

void HfTokenizer::EncodeContinuationTo(std::string_view text, std::vector<int32_t>& ids) const {
  EncodeText(text, TextPlace::kContinuation, ids);
}

void HfTokenizer::EncodeText(std::string_view text, TextPlace place,
                             std::vector<int32_t>& ids) const {
  in_text_->Split(
      text,
      [&](std::string_view section) { EncodeSection(section, PlaceOf(section, text, place), ids); },
      [&ids](int32_t id) { ids.push_back(id); });
}

void HfTokenizer::EncodeSection(std::string_view text, TextPlace place,
                                std::vector<int32_t>& ids) const {
  std::string normalized;
  if (normalizer_ != nullptr) {
    normalized = text;
    normalizer_->Apply(normalized, place);
    text = normalized;
  }
  if (in_normalized_->empty()) return EncodePieces(text, place, ids);
  in_normalized_->Split(
      text,
      [&](std::string_view section) { EncodePieces(section, PlaceOf(section, text, place), ids); },
      [&ids](int32_t id) { ids.push_back(id); });
}

void HfTokenizer::EncodePieces(std::string_view text, TextPlace place,
                               std::vector<int32_t>& ids) const {
  class Encoder : public PieceSink {
   public:
    Encoder(const BpeModel& model, BpeModel::Scratch& scratch, std::vector<int32_t>& ids)
        : model_(model), scratch_(scratch), ids_(ids) {}
    void Take(std::string_view piece) override { model_.Encode(piece, scratch_, ids_); }

   private:
    const BpeModel& model_;
    BpeModel::Scratch& scratch_;
    std::vector<int32_t>& ids_;
  };
  ScratchLease scratch(*this);
  Encoder encoder(*model_, *scratch, ids);
  if (pre_tokenizer_ != nullptr) {
    pre_tokenizer_->Split(text, place, encoder);
  } else if (!text.empty()) {
    encoder.Take(text);
  }
}

std::string_view HfTokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size_) return {};
  const size_t begin = bytes_begin_[static_cast<size_t>(id)];
  return std::string_view(bytes_).substr(begin, bytes_begin_[static_cast<size_t>(id) + 1] - begin);
}

bool HfTokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocab_size_ && special_[static_cast<size_t>(id)] != 0;
}

std::optional<int32_t> HfTokenizer::Find(std::string_view token) const {
  for (const AddedToken& added : added_) {
    if (added.content == token) return added.id;
  }
  return model_->Find(token);
}

size_t HfTokenizer::FindCut(std::string_view text, size_t from) const {
  if (!cuts_at_lines_) return std::string_view::npos;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  size_t newline = text.find('\n', from > 1 ? from - 1 : 1);
  for (; newline != std::string_view::npos && newline + 1 < text.size();
       newline = text.find('\n', newline + 1)) {
    // One line end between visible ASCII: white space before it could make one piece with it.
    const char before = text[newline - 1];
    if (before > ' ' && before < '\x7F' && is_letter(text[newline + 1])) return newline + 1;
  }
  return std::string_view::npos;
}

std::shared_ptr<const Tokenizer> LoadHfTokenizer(const std::string& path) {
  std::string json = ReadFile(path);
  if (json == ByteTokenizer::Json()) return std::make_shared<const ByteTokenizer>();
  return std::make_shared<const HfTokenizer>(path, std::move(json));
}

}  // namespace infini_train
