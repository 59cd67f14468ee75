#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/data/tokenizer.h"
#include "infini_train/data/tokenizer/added_tokens.h"
#include "infini_train/data/tokenizer/bpe.h"
#include "infini_train/data/tokenizer/normalizer.h"
#include "infini_train/data/tokenizer/pre_tokenizer.h"

namespace infini_train {

/// What a Hugging Face tokenizer.json describes: added tokens are cut out of the text, the rest is
/// normalized, cut into pieces and encoded piece by piece.
class HfTokenizer : public Tokenizer {
 public:
  /// `json` is the content of file `path`; files beside it say which ids end a text.
  HfTokenizer(const std::string& path, std::string json);
  ~HfTokenizer() override;

  void EncodeTo(std::string_view text, std::vector<int32_t>& ids) const override;
  void EncodeContinuationTo(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string_view TokenBytes(int32_t id) const override;
  bool IsSpecial(int32_t id) const override;
  std::optional<int32_t> Find(std::string_view token) const override;
  size_t FindCut(std::string_view text, size_t from) const override;

 private:
  class ScratchLease;

  void Load(const JsonNode& file);
  void LoadAdded(const JsonNode& node);
  void LoadPostProcessor(const JsonNode& node);
  void LoadTemplate(const JsonNode& node);
  void LoadTokenBytes(const JsonNode& decoder, bool byte_level);
  void LoadEndOfText(const std::string& folder);
  bool LoadEosIds(const std::string& path);
  bool LoadEosName(const std::string& path);
  bool TokenExists(int64_t id) const;

  void EncodeText(std::string_view text, TextPlace place, std::vector<int32_t>& ids) const;
  void EncodeSection(std::string_view text, TextPlace place, std::vector<int32_t>& ids) const;
  void EncodePieces(std::string_view text, TextPlace place, std::vector<int32_t>& ids) const;

  std::optional<BpeModel> model_;
  std::unique_ptr<const Normalizer> normalizer_;
  std::unique_ptr<const PreTokenizer> pre_tokenizer_;
  std::vector<AddedToken> added_;
  std::optional<AddedTokenSplitter> in_text_;        // tokens looked for in the text as it is
  std::optional<AddedTokenSplitter> in_normalized_;  // tokens looked for in the normalized text
  std::vector<char> special_;                        // by id
  std::string bytes_;                                // of all tokens
  std::vector<size_t> bytes_begin_;                  // by id, and the end of all
  bool cuts_at_lines_ = false;

  mutable std::mutex mutex_;  // guards what follows
  mutable std::vector<std::unique_ptr<BpeModel::Scratch>> idle_;
  mutable size_t num_scratches_ = 0;
};

/// Throws Error if the file is missing, damaged, or of a kind that is not supported.
std::shared_ptr<const Tokenizer> LoadHfTokenizer(const std::string& path);

}  // namespace infini_train
