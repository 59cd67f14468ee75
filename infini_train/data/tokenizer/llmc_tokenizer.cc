#include "infini_train/data/tokenizer/llmc_tokenizer.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/data/tokenizer/bpe.h"
#include "infini_train/data/tokenizer/byte_alphabet.h"
#include "infini_train/data/tokenizer/hf_tokenizer.h"
#include "infini_train/data/tokenizer/known_patterns.h"
#include "infini_train/data/tokenizer/merge_table.h"
#include "infini_train/data/unicode/unicode.h"

namespace infini_train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kGpt2Magic = 20240328;
constexpr int32_t kLlama3Magic = 20240801;
constexpr size_t kHeaderBytes = 256 * sizeof(int32_t);

struct LlmcVocabulary {
  bool is_llama3 = false;
  int32_t end_of_text = 0;
  /// The first id that is not the result of merging.
  int32_t first_special = 0;
  std::vector<std::string_view> tokens;
};

LlmcVocabulary ReadVocabulary(const MappedFile& file) {
  const auto fail = [&](const std::string& what) {
    throw Error(fmt::format("{}: {}", file.path(), what));
  };
  std::string_view bytes = file.text();
  if (bytes.size() < kHeaderBytes) fail("is shorter than a header of 1024 bytes");
  std::array<int32_t, 4> header;
  std::memcpy(header.data(), bytes.data(), sizeof(header));
  const auto [magic, version, size, end_of_text] = header;
  if (version != 1 && version != 2) fail(fmt::format("expected version 1 or 2, found {}", version));
  if (size < 256 || size > kMostTokens) {
    fail(fmt::format("expected 256 to {} tokens, found {}", kMostTokens, size));
  }
  LlmcVocabulary result;
  result.is_llama3 = magic == kLlama3Magic;
  result.end_of_text = version == 2 ? end_of_text : result.is_llama3 ? 128001 : 50256;
  if (result.end_of_text < 0 || result.end_of_text >= size) {
    fail(fmt::format("end-of-text id: expected less than {}, found {}", size, result.end_of_text));
  }
  // Llama 3 has its special tokens, of which end of text is the second, at the end.
  result.first_special = result.is_llama3 ? result.end_of_text - 1 : result.end_of_text;
  bytes.remove_prefix(kHeaderBytes);
  for (int32_t id = 0; id < size; ++id) {
    const size_t length = bytes.empty() ? 0 : static_cast<unsigned char>(bytes.front());
    if (length == 0 || length + 1 > bytes.size())
      fail(fmt::format("token {} is empty or cut off", id));
    result.tokens.push_back(bytes.substr(1, length));
    bytes.remove_prefix(1 + length);
  }
  if (!bytes.empty()) fail(fmt::format("{} bytes after the last token", bytes.size()));
  return result;
}

std::string InAlphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    unicode::Append(text, CharacterOfByte(static_cast<uint8_t>(byte)));
  }
  return text;
}

/// Merges are recovered in order: what the earlier ones leave of a token are the two parts that its
/// own merge joins.
Json RecoverMerges(const LlmcVocabulary& vocabulary, const std::string& path) {
  std::array<int32_t, 256> byte_ids;
  byte_ids.fill(-1);
  for (int32_t id = 0; id < vocabulary.first_special; ++id) {
    const std::string_view token = vocabulary.tokens[static_cast<size_t>(id)];
    if (token.size() == 1) byte_ids[static_cast<unsigned char>(token.front())] = id;
  }
  for (size_t byte = 0; byte < byte_ids.size(); ++byte) {
    if (byte_ids[byte] < 0) throw Error(fmt::format("{}: no token for byte {}", path, byte));
  }
  MergeTable table;
  table.Reserve(vocabulary.tokens.size());
  Json merges = Json::array();
  std::vector<int32_t> symbols;
  for (int32_t id = 0; id < vocabulary.first_special; ++id) {
    const std::string_view token = vocabulary.tokens[static_cast<size_t>(id)];
    if (token.size() == 1) continue;
    symbols.clear();
    for (const char byte : token)
      symbols.push_back(byte_ids[static_cast<unsigned char>(byte)]);
    table.Apply(symbols);
    if (symbols.size() != 2) continue;  // Llama 3 has tokens that are only looked up whole.
    table.Add(symbols[0], symbols[1], {static_cast<uint32_t>(id), id});
    merges.push_back({InAlphabet(vocabulary.tokens[static_cast<size_t>(symbols[0])]),
                      InAlphabet(vocabulary.tokens[static_cast<size_t>(symbols[1])])});
  }
  return merges;
}

/// The tokenizer.json that says the same.
std::string ToTokenizerJson(const LlmcVocabulary& vocabulary, const std::string& path) {
  Json vocab = Json::object();
  // Appended to: the ordered object's own insertion looks at all that is there.
  auto& vocab_entries = vocab.get_ref<Json::object_t&>();
  Json added = Json::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (static_cast<int32_t>(id) < vocabulary.first_special) {
      vocab_entries.emplace_back(InAlphabet(vocabulary.tokens[id]), id);
    } else {
      added.push_back({{"id", id},
                       {"content", std::string(vocabulary.tokens[id])},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    }
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", !vocabulary.is_llama3}};
  Json pre_tokenizer = byte_level;
  if (vocabulary.is_llama3) {
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", std::string(kLlama3Pattern)}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}};
  }
  const Json file = {{"version", "1.0"},
                     {"added_tokens", added},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", pre_tokenizer},
                     {"post_processor", nullptr},
                     {"decoder", byte_level},
                     {"model",
                      {{"type", "BPE"},
                       {"ignore_merges", vocabulary.is_llama3},
                       {"vocab", vocab},
                       {"merges", RecoverMerges(vocabulary, path)}}}};
  try {
    return file.dump();
  } catch (const Json::exception&) {
    throw Error(fmt::format("{}: a special token is not UTF-8", path));
  }
}

}  // namespace

bool IsLlmcTokenizer(const std::string& path) {
  const std::optional<int32_t> magic = LeadingInt32(path);
  return magic == kGpt2Magic || magic == kLlama3Magic;
}

std::shared_ptr<const Tokenizer> LoadLlmcTokenizer(const std::string& path) {
  const MappedFile file(path);
  return std::make_shared<const HfTokenizer>(path, ToTokenizerJson(ReadVocabulary(file), path));
}

}  // namespace infini_train
