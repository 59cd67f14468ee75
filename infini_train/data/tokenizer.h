#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "infini_train/core/api.h"

namespace infini_train {

/// Turns text into token ids and back. Immutable; every member may be called from several threads
/// at once.
///
/// Text is bytes, usually UTF-8. Byte-level tokenizers keep bytes that are not, so that decoding
/// what was encoded gives the same bytes (after the tokenizer's normalization, if it has one).
class INFINI_TRAIN_API Tokenizer {
 public:
  virtual ~Tokenizer();

  /// The ids of a text. With `add_special_tokens`, also those that the tokenizer puts around a text
  /// (the begin-of-text token of Llama 3). Text that spells an added token becomes that token.
  std::vector<int32_t> Encode(std::string_view text, bool add_special_tokens = false) const;
  /// Appends the ids of a text to `ids`.
  virtual void EncodeTo(std::string_view text, std::vector<int32_t>& ids) const = 0;
  /// The same for a text that goes on where another ended: without what the tokenizer would write
  /// in front of a text (SentencePiece's space).
  virtual void EncodeContinuationTo(std::string_view text, std::vector<int32_t>& ids) const;

  /// The bytes that ids stand for. An id without a token (models round their vocabulary up) gives
  /// nothing, and neither does a special token if `skip_special_tokens`.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;

  /// The bytes of one token inside a text; empty for an id without a token.
  virtual std::string_view TokenBytes(int32_t id) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  /// The id of a token, spelled as in the tokenizer's file.
  virtual std::optional<int32_t> Find(std::string_view token) const = 0;

  /// "bytes", or the path of the tokenizer's file.
  const std::string& name() const { return name_; }
  /// The highest id and one.
  int64_t vocab_size() const { return vocab_size_; }
  /// Ids that end a text; the first is the usual one. May be empty.
  const std::vector<int32_t>& eos_ids() const { return eos_ids_; }
  /// The id to put in front of every document of a training corpus: what Encode() puts in front of
  /// a text, else `<|endoftext|>`, else the first of eos_ids().
  std::optional<int32_t> document_delimiter() const { return document_delimiter_; }

  /// The first place at or after `from` where a text can be cut so that the ids of its parts, one
  /// after the other, are the ids of the whole; npos if none is known.
  virtual size_t FindCut(std::string_view text, size_t from) const = 0;

  /// Writes `tokenizer.json`, and `tokenizer_config.json` with the names of the special tokens, to
  /// a folder: LoadTokenizer() and Hugging Face's AutoTokenizer read them.
  void Save(const std::string& folder) const;

  /// The special tokens that Encode() puts in front of a text, and behind it, on request.
  std::span<const int32_t> before_text() const { return before_text_; }
  std::span<const int32_t> after_text() const { return after_text_; }

  /// What a decoded text loses at its front: `character`, as often as it is there but no more than
  /// `count` times.
  struct Strip {
    std::string character;
    size_t count = 0;

    /// Takes from `text` what it starts with, of what `count` leaves after `taken` times; returns
    /// the times in all.
    size_t Apply(std::string& text, size_t taken) const;
  };
  const Strip& strip() const { return strip_; }

 protected:
  std::string name_;
  int64_t vocab_size_ = 0;
  std::vector<int32_t> eos_ids_;
  std::optional<int32_t> document_delimiter_;
  std::vector<int32_t> before_text_;
  std::vector<int32_t> after_text_;
  Strip strip_;
  std::vector<std::pair<std::string, std::string>> files_;  ///< names and contents for Save()
};

/// Loads a tokenizer: "bytes" for the built-in one (ids 0 to 255 are the bytes, 256 is the end of a
/// text), or the path of a Hugging Face `tokenizer.json`, of a folder that holds one, or of a
/// tokenizer.bin of llm.c. The ids that end a text come from the files beside it:
/// `generation_config.json`, `config.json` or `tokenizer_config.json`. Throws Error with the file
/// and the place of what is wrong or unknown.
INFINI_TRAIN_API std::shared_ptr<const Tokenizer> LoadTokenizer(const std::string& path_or_name);

/// Decodes tokens as they are generated. What comes out is well-formed UTF-8: the bytes of a
/// character that is not complete wait for the tokens to come, and bytes that cannot become one are
/// replaced by U+FFFD.
class INFINI_TRAIN_API StreamingDecoder {
 public:
  /// `is_continuation`: the tokens go on where a text ended, so that none of what they stand for is
  /// taken off the front.
  explicit StreamingDecoder(std::shared_ptr<const Tokenizer> tokenizer,
                            bool skip_special_tokens = true, bool is_continuation = false);

  /// The text that the next token completes, often empty.
  std::string Push(int32_t id);
  /// What is left at the end: U+FFFD for an incomplete character. The decoder starts anew, with a
  /// text that goes on no other.
  std::string Finish();

 private:
  std::string Release(bool at_end);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  size_t stripped_ = 0;  // times that the front of the text was stripped
  bool at_start_;
  std::string pending_;
};

}  // namespace infini_train
