#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/data/tokenizer.h"

namespace infini_train {

/// The built-in tokenizer "bytes": ids 0 to 255 are the bytes of the text, 256 is `<|endoftext|>`,
/// which no text encodes to.
class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer();

  void EncodeTo(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string_view TokenBytes(int32_t id) const override;
  bool IsSpecial(int32_t id) const override;
  std::optional<int32_t> Find(std::string_view token) const override;
  size_t FindCut(std::string_view text, size_t from) const override;

  /// The tokenizer.json that Save() writes. LoadTokenizer() knows it again; Hugging Face reads it
  /// as a byte-level BPE without merges, with the same ids.
  static const std::string& Json();

 private:
  std::array<char, 256> bytes_;
};

}  // namespace infini_train
