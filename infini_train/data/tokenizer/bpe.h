#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "infini_train/core/json/json_node.h"
#include "infini_train/data/tokenizer/merge_table.h"
#include "infini_train/data/tokenizer/piece_cache.h"

namespace infini_train {

/// Ids and vocabulary sizes are below this: far above any real vocabulary, and small enough that a
/// table of all ids cannot exhaust the memory.
constexpr int64_t kMostTokens = int64_t{1} << 22;

/// Byte-pair encoding (Sennrich et al., 2016) with the `model` of a tokenizer.json. Characters are
/// bytes if the pre-tokenizer is ByteLevel, and code points otherwise.
class BpeModel {
 public:
  /// Reads and checks vocabulary and merges. Errors name the place, for a merge its index.
  BpeModel(const JsonNode& node, bool byte_level);

  /// Buffers and known pieces of one thread's encoding.
  struct Scratch {
    // Slots of 64 and 128 bytes: 2 MiB for words, 1 MiB for what is longer.
    PieceCache<18, 11, 15> words;
    PieceCache<62, 16, 13> phrases;
    std::vector<int32_t> symbols;
  };

  /// Appends the ids of one piece. A character without a token gives the unknown token, if the
  /// model has one, and otherwise nothing.
  void Encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

  /// Token strings as in the file, by id; null where no token has the id.
  const std::vector<const std::string*>& tokens() const { return tokens_; }
  std::optional<int32_t> Find(std::string_view token) const;

 private:
  void LoadVocabulary(const JsonNode& node);
  void LoadMerges(const JsonNode& node);
  void LoadUnknown(const JsonNode& node);

  void EncodeWord(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;
  void EncodeUncached(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;
  void Symbolize(std::string_view piece, std::vector<int32_t>& symbols) const;
  void SymbolizeCharacters(std::string_view piece, std::vector<int32_t>& symbols) const;

  bool byte_level_;
  bool ignore_merges_ = false;
  bool fuse_unknown_ = false;
  std::unordered_map<std::string, int32_t> vocabulary_;
  std::vector<const std::string*> tokens_;
  std::unordered_map<std::string, int32_t> pieces_;  // byte strings, where merges may be ignored
  std::vector<int32_t> byte_ids_;                    // of one-byte characters, or -1
  std::vector<int32_t> fallback_ids_;                // of <0x00> to <0xFF>, if the model has them
  int32_t unknown_id_ = -1;
  // Text can be cut in front of this character unless it follows itself; empty if there is none.
  std::string_view mark_;
  MergeTable merges_;
};

}  // namespace infini_train
