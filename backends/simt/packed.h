#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "backends/simt/dialect.h"
#include "infini_train/core/half.h"

namespace infini_train::simt {

/// N neighbouring elements in the words that they came in. What is read under a condition and used
/// behind it should be held so: a compiler that takes elements of half types apart under the
/// condition waits there for each vector before it reads the next.
template <typename T, int N>
class Packed {
  using Word = std::conditional_t<sizeof(T) * N % 4 == 0, std::uint32_t,
                                  std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>;
  static constexpr int kWords = static_cast<int>(sizeof(T) * N / sizeof(Word));
  using Words = Vec<Word, kWords>;

 public:
  Packed() = default;
  SIMT_DEVICE explicit Packed(const Vec<T, N>& elements) : words_(std::bit_cast<Words>(elements)) {}
  SIMT_DEVICE static Packed OfWords(const Words& words) {
    Packed packed;
    packed.words_ = words;
    return packed;
  }

  SIMT_DEVICE static Packed Of(const T* elements, Place place = Place::current()) {
    Packed packed;
    packed.words_ = Load<kWords>(reinterpret_cast<const Word*>(elements), place);
    return packed;
  }

  /// The inverse of Widen(), rounded to nearest.
  SIMT_DEVICE static Packed Narrow(const ComputeType<T> (&numbers)[N]) {
    if constexpr (kIsHalf<T> && N % 2 == 0) {
      Packed packed;
      SIMT_UNROLL
      for (int i = 0; i < kWords; ++i)
        packed.words_[i] = PackHalves<T>(numbers[2 * i], numbers[2 * i + 1]);
      return packed;
    } else {
      Vec<T, N> elements;
      SIMT_UNROLL
      for (int k = 0; k < N; ++k)
        elements[k] = FromCompute<T>(numbers[k]);
      return Packed(elements);
    }
  }

  SIMT_DEVICE void Store(T* elements, Place place = Place::current()) const {
    simt::Store(reinterpret_cast<Word*>(elements), words_, place);
  }

  SIMT_DEVICE const Words& words() const { return words_; }
  SIMT_DEVICE Vec<T, N> Unpack() const { return std::bit_cast<Vec<T, N>>(words_); }

  /// The numbers that arithmetic runs in, without taking halves of words apart first.
  SIMT_DEVICE void Widen(ComputeType<T> (&numbers)[N]) const {
    if constexpr (std::is_same_v<T, BFloat16> && N % 2 == 0) {
      SIMT_UNROLL
      for (int i = 0; i < kWords; ++i) {
        numbers[2 * i] = std::bit_cast<float>(words_[i] << 16);
        numbers[2 * i + 1] = std::bit_cast<float>(words_[i] & 0xFFFF0000u);
      }
    } else {
      const Vec<T, N> elements = Unpack();
      SIMT_UNROLL
      for (int k = 0; k < N; ++k)
        numbers[k] = ToCompute(elements[k]);
    }
  }

 private:
  Words words_ = {};
};

}  // namespace infini_train::simt
