// Any text decodes to itself, and the hand-written splitters agree with the regular expressions.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/data/tokenizer.h"
#include "infini_train/data/tokenizer/known_patterns.h"
#include "infini_train/data/tokenizer/pre_tokenizer.h"
#include "infini_train/data/unicode/unicode.h"

namespace {

using namespace infini_train;

class Collector : public PieceSink {
 public:
  void Take(std::string_view piece) override { pieces.emplace_back(piece); }
  std::vector<std::string> pieces;
};

// Text whose characters every version of Unicode that PCRE2 may have classifies alike.
bool IsComparable(std::string_view text) {
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const unicode::Character character = unicode::Decode(p, end);
    if (character.code_point >= 0x500) return false;
    p += character.size;
  }
  return true;
}

void CompareSplitters(std::string_view text) {
  for (const std::string_view pattern : {kGpt2Pattern, kLlama3Pattern, kQwenPattern}) {
    Collector known, regex;
    MakeKnownSplitter(pattern)->Split(text, TextPlace::kStart, known);
    MakeRegexSplitter(std::string(pattern))->Split(text, TextPlace::kStart, regex);
    if (known.pieces != regex.pieces) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto gpt2 = LoadTokenizer(DATA_GOLDEN_FOLDER "/gpt2.json");
  static const auto mixtral = LoadTokenizer(DATA_GOLDEN_FOLDER "/mixtral.json");
  static const auto llama3 = LoadTokenizer(DATA_GOLDEN_FOLDER "/llama3.json");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (IsComparable(text)) CompareSplitters(text);
  // What spells an added token or the mark of a space is not given back.
  const bool plain = text.find_first_of("<[\xC3\xE2") == text.npos;
  if (plain && mixtral->Decode(mixtral->Encode(text)) != text) std::abort();
  for (const auto& tokenizer : {gpt2, llama3}) {
    const std::vector<int32_t> ids = tokenizer->Encode(text);
    // Two added tokens of these files take white space along.
    const bool strips = text.find("[LEFT]") != text.npos || text.find("[RIGHT]") != text.npos;
    if (!strips && tokenizer->Decode(ids) != text) std::abort();
    const size_t cut = tokenizer->FindCut(text, size / 2);
    if (cut == std::string_view::npos) continue;
    std::vector<int32_t> parts;
    tokenizer->EncodeTo(text.substr(0, cut), parts);
    tokenizer->EncodeTo(text.substr(cut), parts);
    if (parts != ids) std::abort();
  }
  return 0;
}
