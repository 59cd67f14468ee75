#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace infini_train::simt {

/// The widest access to global or shared memory.
inline constexpr int kMaxVectorBytes = 16;

/// The most elements of T that one access moves.
template <typename T>
inline constexpr int kMaxVectorWidth = kMaxVectorBytes / static_cast<int>(sizeof(T));

/// N neighbouring elements, moved by one access.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vec {
  static_assert(N > 0 && (N & (N - 1)) == 0, "the width is a power of two");
  static_assert((sizeof(T) & (sizeof(T) - 1)) == 0, "the element size is a power of two");

  T v[N];

  constexpr T& operator[](int i) { return v[i]; }
  constexpr const T& operator[](int i) const { return v[i]; }
};

namespace detail {

template <typename T>
constexpr int WidthAllowedBy(const T* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  int width = kMaxVectorBytes / static_cast<int>(sizeof(T));
  while (width > 1 && address % (static_cast<std::uintptr_t>(width) * sizeof(T)) != 0)
    width /= 2;
  return width > 0 ? width : 1;
}

template <typename T>
requires std::is_integral_v<T>
constexpr int WidthAllowedBy(T extent) {
  int width = kMaxVectorBytes;
  while (width > 1 && extent % width != 0)
    width /= 2;
  return width;
}

}  // namespace detail

/// The widest N with which every pointer may be read or written as Vec<T, N> and which divides
/// every extent: `VectorWidth(out, input, row_length)`. Rows of row_length elements then keep the
/// alignment.
template <typename... Arguments>
int VectorWidth(Arguments... arguments) {
  int width = kMaxVectorBytes;
  ((width = detail::WidthAllowedBy(arguments) < width ? detail::WidthAllowedBy(arguments) : width),
   ...);
  return width;
}

/// Calls `body(std::integral_constant<int, N>{})` for the N of `kWidths` that is the widest one not
/// above `width`. `kWidths` descends and ends with 1: `DispatchWidth<4, 1>(width, body)`.
template <int kWidth, int... kNarrower, typename Body>
void DispatchWidth(int width, Body&& body) {
  if constexpr (sizeof...(kNarrower) == 0) {
    static_assert(kWidth == 1, "the last width is 1");
    body(std::integral_constant<int, 1>{});
  } else if (width >= kWidth) {
    body(std::integral_constant<int, kWidth>{});
  } else {
    DispatchWidth<kNarrower...>(width, body);
  }
}

}  // namespace infini_train::simt
