#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "infini_train/core/dtype.h"
#include "infini_train/core/half.h"

/// Vectors of the widest kind that the target has, from the compilers' vector extensions: one
/// source for AVX-512, AVX2 and everything else.
namespace infini_train::cpu::simd {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

/// Number of registers that the kernels below plan with.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kVectorRegisters = 32;
#else
inline constexpr int kVectorRegisters = 16;
#endif

template <typename T, int bytes = kVectorBytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(bytes)));
};
template <typename T>
using Vector = typename VectorOf<T>::type;

template <typename T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <typename T>
inline Vector<T> Broadcast(T value) {
  return value - Vector<T>{};
}

/// kLanes<T> elements from memory of any alignment, converted to T.
template <typename T, typename S>
inline Vector<T> Load(const S* source) {
  if constexpr (std::is_same_v<T, S>) {
    Vector<T> result;
    std::memcpy(&result, source, sizeof(result));
    return result;
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<S, BFloat16>) {
    typename VectorOf<std::uint16_t, kVectorBytes / 2>::type bits;
    std::memcpy(&bits, source, sizeof(bits));
    const Vector<std::uint32_t> wide = __builtin_convertvector(bits, Vector<std::uint32_t>) << 16;
    return reinterpret_cast<Vector<float>>(wide);
  } else {
    T values[kLanes<T>];
    for (int i = 0; i < kLanes<T>; ++i)
      values[i] = static_cast<T>(source[i]);
    return Load<T>(values);
  }
}

template <typename T>
inline void Store(T* destination, Vector<T> value) {
  std::memcpy(destination, &value, sizeof(value));
}

/// Sum of the lanes, pairwise.
template <typename T>
inline T Sum(Vector<T> value) {
  T lanes[kLanes<T>];
  Store(lanes, value);
  for (int width = kLanes<T> / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i)
      lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

namespace detail {
template <typename V, int lanes, bool high, int... i>
inline V Interleave(V a, V b, std::integer_sequence<int, i...>) {
  constexpr int kBase = high ? lanes / 2 : 0;
  return __builtin_shufflevector(a, b, (kBase + i / 2 + (i % 2) * lanes)...);
}
}  // namespace detail

/// Transposes a square of kLanes<T> vectors in registers: log2 rounds of perfect shuffles.
template <typename T>
inline void Transpose(Vector<T> (&rows)[kLanes<T>]) {
  constexpr int kN = kLanes<T>;
  using Indices = std::make_integer_sequence<int, kN>;
#pragma GCC unroll 4
  for (int round = 1; round < kN; round *= 2) {
    Vector<T> next[kN];
#pragma GCC unroll 16
    for (int i = 0; i < kN / 2; ++i) {
      next[2 * i] = detail::Interleave<Vector<T>, kN, false>(rows[i], rows[i + kN / 2], Indices{});
      next[2 * i + 1] =
          detail::Interleave<Vector<T>, kN, true>(rows[i], rows[i + kN / 2], Indices{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < kN; ++i)
      rows[i] = next[i];
  }
}

}  // namespace infini_train::cpu::simd
