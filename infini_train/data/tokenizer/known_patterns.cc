#include "infini_train/data/tokenizer/known_patterns.h"

#include <array>
#include <cstdint>
#include <memory>

#include "infini_train/data/tokenizer/pre_tokenizer.h"
#include "infini_train/data/unicode/unicode.h"

// Matchers that give, at every position, what the expressions of known_patterns.h match there. Each
// alternative is tried in the expression's order. None backtracks over more than the white space
// that it then consumes, so that splitting is linear.

namespace infini_train {
namespace {

using unicode::CharClass;

constexpr std::array<CharClass, 128> kAsciiClass = [] {
  std::array<CharClass, 128> table{};
  for (int c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    table[c] = letter                 ? CharClass::kLetter
               : c >= '0' && c <= '9' ? CharClass::kNumber
               : space                ? CharClass::kSpace
                                      : CharClass::kOther;
  }
  return table;
}();

struct Classified {
  CharClass char_class;
  uint32_t size;
};

inline Classified Classify(const char* p, const char* end) {
  const auto byte = static_cast<unsigned char>(*p);
  if (byte < 128) return {kAsciiClass[byte], 1};
  const unicode::Character character = unicode::DecodeMultiByte(p, end);
  return {unicode::ClassOf(character.code_point), character.size};
}

inline bool IsNewline(char c) {
  return c == '\n' || c == '\r';
}

// Skips characters of a class.
inline const char* SkipClass(const char* p, const char* end, CharClass char_class) {
  while (p < end) {
    const Classified c = Classify(p, end);
    if (c.char_class != char_class) break;
    p += c.size;
  }
  return p;
}

// 's 't 're 've 'm 'll 'd at `p`, which holds an apostrophe: its length, or 0.
template <bool kIgnoreCase>
size_t ContractionLength(const char* p, const char* end) {
  const auto letter = [&](size_t i) {
    const char c = p[i];
    return kIgnoreCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  const auto left = static_cast<size_t>(end - p);
  if (left < 2) return 0;
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return left > 2 && letter(2) == 'e' ? 3 : 0;
    case 'l':
      return left > 2 && letter(2) == 'l' ? 3 : 0;
    default:
      break;
  }
  // The long s, U+017F, is an s when case does not count.
  if (kIgnoreCase && left > 2 && p[1] == '\xC5' && p[2] == '\xBF') return 3;
  return 0;
}

// The end of the match of \s+(?!\S)|\s+ at `p`, where white space starts that ends at `stop`, whose
// last character is at `last`: a run before something else leaves its last character to it.
inline const char* EndOfSpaces(const char* p, const char* last, const char* stop, const char* end) {
  return stop == end || last == p ? stop : last;
}

struct Gpt2 {
  static const char* Next(const char* p, const char* end) {
    if (*p == '\'') {
      if (const size_t size = ContractionLength<false>(p, end)) return p + size;
    }
    const char* q = p;
    Classified first = Classify(q, end);
    if (*p == ' ' && p + 1 < end) {
      const Classified second = Classify(p + 1, end);
      if (second.char_class != CharClass::kSpace) {
        q = p + 1;
        first = second;
      }
    }
    if (first.char_class != CharClass::kSpace) {
      return SkipClass(q + first.size, end, first.char_class);
    }
    const char* last = p;
    const char* stop = p;
    while (stop < end) {
      const Classified c = Classify(stop, end);
      if (c.char_class != CharClass::kSpace) break;
      last = stop;
      stop += c.size;
    }
    return EndOfSpaces(p, last, stop, end);
  }
};

// Llama 3 and Qwen differ in how many digits make a piece.
template <int kDigits>
struct Cl100k {
  static const char* Next(const char* p, const char* end) {
    if (*p == '\'') {
      if (const size_t size = ContractionLength<true>(p, end)) return p + size;
    }
    const Classified first = Classify(p, end);
    if (first.char_class == CharClass::kLetter) {
      return SkipClass(p + first.size, end, CharClass::kLetter);
    }
    if (first.char_class == CharClass::kNumber) return SkipDigits(p + first.size, end);
    Classified second{CharClass::kSpace, 0};
    if (p + first.size < end) second = Classify(p + first.size, end);
    if (second.char_class == CharClass::kLetter && !IsNewline(*p)) {
      return SkipClass(p + first.size + second.size, end, CharClass::kLetter);
    }
    if (first.char_class == CharClass::kOther) return SkipOthers(p + first.size, end);
    if (*p == ' ' && second.char_class == CharClass::kOther) {
      return SkipOthers(p + 1 + second.size, end);
    }
    return SkipSpaces(p, end);
  }

 private:
  static const char* SkipDigits(const char* p, const char* end) {
    for (int digits = 1; digits < kDigits && p < end; ++digits) {
      const Classified c = Classify(p, end);
      if (c.char_class != CharClass::kNumber) break;
      p += c.size;
    }
    return p;
  }

  // [^\s\p{L}\p{N}]*[\r\n]*
  static const char* SkipOthers(const char* p, const char* end) {
    p = SkipClass(p, end, CharClass::kOther);
    while (p < end && IsNewline(*p))
      ++p;
    return p;
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+
  static const char* SkipSpaces(const char* p, const char* end) {
    const char* last = p;
    const char* after_newline = nullptr;
    const char* stop = p;
    while (stop < end) {
      const Classified c = Classify(stop, end);
      if (c.char_class != CharClass::kSpace) break;
      last = stop;
      stop += c.size;
      if (IsNewline(*last)) after_newline = stop;
    }
    return after_newline != nullptr ? after_newline : EndOfSpaces(p, last, stop, end);
  }
};

template <typename Pattern>
class KnownSplitter : public PreTokenizer {
 public:
  void Split(std::string_view text, TextPlace, PieceSink& sink) const override {
    const char* p = text.data();
    const char* const end = p + text.size();
    while (p < end) {
      const char* const next = Pattern::Next(p, end);
      sink.Take({p, static_cast<size_t>(next - p)});
      p = next;
    }
  }
};

}  // namespace

std::unique_ptr<const PreTokenizer> MakeKnownSplitter(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return std::make_unique<KnownSplitter<Gpt2>>();
  if (pattern == kLlama3Pattern) return std::make_unique<KnownSplitter<Cl100k<3>>>();
  if (pattern == kQwenPattern) return std::make_unique<KnownSplitter<Cl100k<1>>>();
  return nullptr;
}

}  // namespace infini_train
