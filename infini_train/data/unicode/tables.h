#pragma once

#include <cstddef>
#include <cstdint>

/// The generated part of the Unicode character database; see generate_tables.py. unicode.h gives it
/// meaning.
namespace infini_train::unicode {

struct CombiningRange {
  uint32_t first;
  uint32_t last;
  uint8_t combining_class;
};

struct Decomposition {
  uint32_t code_point;
  uint16_t begin;  ///< in kDecomposedText
  uint8_t size;
};

struct Composition {
  uint32_t first;
  uint32_t second;
  uint32_t composed;
};

/// Pages of 256 code points share blocks of 128 bytes, two code points a byte, the even one low.
/// Bits 0 and 1 are the CharClass, bit 2 is set if the character is not inert under NFC.
extern const uint8_t kBlockOfPage[];
extern const uint8_t kProperties[];

/// Non-zero canonical combining classes, by code point.
extern const CombiningRange kCombiningRanges[];
extern const size_t kNumCombiningRanges;

/// Full canonical decompositions other than Hangul's, by code point.
extern const Decomposition kDecompositions[];
extern const size_t kNumDecompositions;
extern const uint32_t kDecomposedText[];

/// Primary composites other than Hangul's, by first and second character.
extern const Composition kCompositions[];
extern const size_t kNumCompositions;

}  // namespace infini_train::unicode
