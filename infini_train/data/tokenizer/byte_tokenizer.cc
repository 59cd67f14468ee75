#include "infini_train/data/tokenizer/byte_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "infini_train/data/tokenizer/byte_alphabet.h"
#include "infini_train/data/unicode/unicode.h"

namespace infini_train {
namespace {

constexpr int32_t kEndOfText = 256;
constexpr std::string_view kEndOfTextName = "<|endoftext|>";

}  // namespace

const std::string& ByteTokenizer::Json() {
  static const std::string json = [] {
    using Json = nlohmann::ordered_json;
    Json vocabulary = Json::object();
    for (int byte = 0; byte < 256; ++byte) {
      std::string character;
      unicode::Append(character, CharacterOfByte(static_cast<uint8_t>(byte)));
      vocabulary[character] = byte;
    }
    const Json byte_level = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", true},
                             {"use_regex", false}};
    const Json end_of_text = {
        {"id", kEndOfText}, {"content", kEndOfTextName}, {"single_word", false}, {"lstrip", false},
        {"rstrip", false},  {"normalized", false},       {"special", true}};
    const Json model = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", false},
                        {"vocab", vocabulary},
                        {"merges", Json::array()}};
    const Json file = {{"version", "1.0"},
                       {"truncation", nullptr},
                       {"padding", nullptr},
                       {"added_tokens", Json::array({end_of_text})},
                       {"normalizer", nullptr},
                       {"pre_tokenizer", byte_level},
                       {"post_processor", nullptr},
                       {"decoder", byte_level},
                       {"model", model}};
    return file.dump(1) + "\n";
  }();
  return json;
}

ByteTokenizer::ByteTokenizer() {
  for (size_t byte = 0; byte < bytes_.size(); ++byte)
    bytes_[byte] = static_cast<char>(byte);
  name_ = "bytes";
  vocab_size_ = kEndOfText + 1;
  eos_ids_ = {kEndOfText};
  document_delimiter_ = kEndOfText;
  files_ = {{"tokenizer.json", Json()},
            {"tokenizer_config.json",
             fmt::format("{{\n \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n \"eos_token\": "
                         "\"{}\"\n}}\n",
                         kEndOfTextName)}};
}

void ByteTokenizer::EncodeTo(std::string_view text, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  ids.resize(before + text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    ids[before + i] = static_cast<unsigned char>(text[i]);
  }
}

std::string_view ByteTokenizer::TokenBytes(int32_t id) const {
  if (id == kEndOfText) return kEndOfTextName;
  if (id < 0 || id > kEndOfText) return {};
  return {&bytes_[static_cast<size_t>(id)], 1};
}

bool ByteTokenizer::IsSpecial(int32_t id) const {
  return id == kEndOfText;
}

std::optional<int32_t> ByteTokenizer::Find(std::string_view token) const {
  if (token == kEndOfTextName) return kEndOfText;
  const auto bytes = BytesOfToken(token);
  if (!bytes || bytes->size() != 1) return std::nullopt;
  return static_cast<unsigned char>(bytes->front());
}

size_t ByteTokenizer::FindCut(std::string_view text, size_t from) const {
  return from <= text.size() ? from : std::string_view::npos;
}

}  // namespace infini_train
