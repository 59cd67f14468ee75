#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "infini_train/kernels/cpu/gemm/simd.h"

namespace infini_train::cpu {

/// The tile of c that a micro-kernel keeps in registers: as many rows as leave room for a strip of
/// b two vectors wide.
template <typename T>
struct Tile {
  static constexpr int kVectors = 2;
  static constexpr int kColumns = kVectors * simd::kLanes<T>;
  static constexpr int kRows = simd::kVectorRegisters == 32 ? 12 : 6;
};

/// c [rows, Tile::kColumns] (row stride ldc) = or += the product of packed strips: a [depth][rows],
/// b [depth][Tile::kColumns].
template <typename T>
using MicroKernel = void (*)(std::int64_t depth, const T* a, const T* b, T* c, std::int64_t ldc,
                             bool add);

namespace detail {

template <typename T, int rows>
void RunMicroKernel(std::int64_t depth, const T* __restrict a, const T* __restrict b,
                    T* __restrict c, std::int64_t ldc, bool add) {
  using V = simd::Vector<T>;
  constexpr int kVectors = Tile<T>::kVectors;
  constexpr int kN = simd::kLanes<T>;
  V sums[rows][kVectors] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    V columns[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      columns[j] = simd::Load<T>(b + j * kN);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        sums[i][j] += a[i] * columns[j];
    }
    a += rows;
    b += kVectors * kN;
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      T* target = c + i * ldc + j * kN;
      simd::Store(target, add ? simd::Load<T>(target) + sums[i][j] : sums[i][j]);
    }
  }
}

}  // namespace detail

/// Micro-kernels by number of rows less one.
template <typename T>
inline constexpr auto kMicroKernels = []<int... i>(std::integer_sequence<int, i...>) {
  return std::array<MicroKernel<T>, sizeof...(i)>{&detail::RunMicroKernel<T, i + 1>...};
}
(std::make_integer_sequence<int, Tile<T>::kRows>{});

}  // namespace infini_train::cpu
