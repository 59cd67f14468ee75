#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/data/unicode/unicode.h"

namespace infini_train::unicode {
namespace {

// Hangul syllables are composed by arithmetic (The Unicode Standard, section 3.12).
constexpr uint32_t kSyllableBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161,
                   kTrailBase = 0x11A7;
constexpr uint32_t kLeads = 19, kVowels = 21, kTrails = 28, kSyllables = kLeads * kVowels * kTrails;

constexpr uint8_t kNotInert = 4;

struct Mark {
  uint32_t code_point;
  uint8_t combining_class;
};

uint8_t CombiningClass(uint32_t code_point) {
  const auto* const end = kCombiningRanges + kNumCombiningRanges;
  const auto* const range =
      std::lower_bound(kCombiningRanges, end, code_point,
                       [](const CombiningRange& r, uint32_t c) { return r.last < c; });
  return range != end && range->first <= code_point ? range->combining_class : 0;
}

void Decompose(uint32_t code_point, std::vector<Mark>& out) {
  if (code_point - kSyllableBase < kSyllables) {
    const uint32_t index = code_point - kSyllableBase;
    out.push_back({kLeadBase + index / (kVowels * kTrails), 0});
    out.push_back({kVowelBase + index / kTrails % kVowels, 0});
    if (index % kTrails != 0) out.push_back({kTrailBase + index % kTrails, 0});
    return;
  }
  const auto* const end = kDecompositions + kNumDecompositions;
  const auto* const entry =
      std::lower_bound(kDecompositions, end, code_point,
                       [](const Decomposition& d, uint32_t c) { return d.code_point < c; });
  if (entry == end || entry->code_point != code_point) {
    out.push_back({code_point, CombiningClass(code_point)});
    return;
  }
  for (size_t i = 0; i < entry->size; ++i) {
    const uint32_t part = kDecomposedText[entry->begin + i];
    out.push_back({part, CombiningClass(part)});
  }
}

// The primary composite of two characters, or 0.
uint32_t Compose(uint32_t first, uint32_t second) {
  if (first - kLeadBase < kLeads && second - kVowelBase < kVowels) {
    return kSyllableBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kTrails;
  }
  if (first - kSyllableBase < kSyllables && (first - kSyllableBase) % kTrails == 0 &&
      second - kTrailBase - 1 < kTrails - 1) {
    return first + (second - kTrailBase);
  }
  const auto* const end = kCompositions + kNumCompositions;
  const auto* const entry = std::lower_bound(
      kCompositions, end, std::pair(first, second),
      [](const Composition& c, const auto& key) { return std::pair(c.first, c.second) < key; });
  return entry != end && entry->first == first && entry->second == second ? entry->composed : 0;
}

void Reorder(std::vector<Mark>& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    const auto is_starter = [](const Mark& mark) { return mark.combining_class == 0; };
    begin = std::find_if_not(begin, text.end(), is_starter);
    const auto end = std::find_if(begin, text.end(), is_starter);
    std::stable_sort(begin, end, [](const Mark& a, const Mark& b) {
      return a.combining_class < b.combining_class;
    });
    begin = end;
  }
}

// Appends the composed form of reordered, decomposed text.
void ComposeAll(std::vector<Mark>& text, std::string& out) {
  constexpr size_t kNone = static_cast<size_t>(-1);
  size_t size = 0;         // of the composed text, which replaces the front of `text`
  size_t starter = kNone;  // where the last starter is
  uint8_t last_class = 0;  // of the last mark kept after the starter
  for (const Mark mark : text) {
    const bool adjacent = starter != kNone && starter + 1 == size;
    const bool blocked = !adjacent && last_class >= mark.combining_class;
    if (starter != kNone && !blocked) {
      const uint32_t composed = Compose(text[starter].code_point, mark.code_point);
      if (composed != 0) {
        text[starter].code_point = composed;
        continue;
      }
    }
    if (mark.combining_class == 0) starter = size;
    last_class = mark.combining_class;
    text[size++] = mark;
  }
  for (size_t i = 0; i < size; ++i)
    Append(out, text[i].code_point);
}

void NormalizeSegment(std::string_view segment, std::string& out) {
  std::vector<Mark> text;
  const char* const end = segment.data() + segment.size();
  for (const char* p = segment.data(); p < end;) {
    const Character character = Decode(p, end);
    Decompose(character.code_point, text);
    p += character.size;
  }
  Reorder(text);
  ComposeAll(text, out);
}

}  // namespace

bool NormalizeNfc(std::string_view text, std::string& out) {
  const char* const end = text.data() + text.size();
  const char* copied = text.data();   // up to here the result is in `result`
  const char* starter = text.data();  // the last inert character: nothing before it can change
  std::string result;
  bool changed = false;
  for (const char* p = text.data(); p < end;) {
    const Character character = Decode(p, end);
    if ((Properties(character.code_point) & kNotInert) == 0) {
      starter = p;
      p += character.size;
      continue;
    }
    // From the last inert character to the next one, unless the former is not a character at all.
    const char* begin = starter < copied ? copied : starter;
    if (begin < p && Decode(begin, end).code_point == kInvalid) ++begin;
    while (p < end) {
      const Character next = Decode(p, end);
      if ((Properties(next.code_point) & kNotInert) == 0) break;
      p += next.size;
    }
    const std::string_view segment(begin, static_cast<size_t>(p - begin));
    const size_t kept = static_cast<size_t>(begin - copied);
    result.append(copied, kept);
    const size_t before = result.size();
    NormalizeSegment(segment, result);
    changed = changed || std::string_view(result).substr(before) != segment;
    copied = p;
    starter = p;
  }
  if (!changed) return false;
  result.append(copied, static_cast<size_t>(end - copied));
  out = std::move(result);
  return true;
}

}  // namespace infini_train::unicode
