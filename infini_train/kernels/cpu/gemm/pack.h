#pragma once

#include <algorithm>
#include <cstdint>

#include "infini_train/kernels/cpu/gemm/simd.h"

namespace infini_train::cpu {

/// Elements that PackPanel may write beyond its panel.
template <typename T>
inline constexpr int kPackSlack = simd::kLanes<T>;

/// Copies a strip of a matrix into the order in which a micro-kernel reads it, converted to T:
/// panel[k * width + r] = source[r * row_stride + k * depth_stride] for r < rows, 0 for the columns
/// from `rows` to `width`.
template <typename T, typename S>
[[gnu::noinline]] void PackPanel(const S* source, std::int64_t row_stride,
                                 std::int64_t depth_stride, int rows, int width, std::int64_t depth,
                                 T* panel) {
  constexpr int kN = simd::kLanes<T>;
  std::int64_t k = 0;
  if (row_stride == 1 && rows == width && (width % kN == 0 || depth_stride >= kN)) {
    // The last vector of a step may reach beyond the strip, into the matrix and into the next step
    // of the panel, but not in the last step.
    const std::int64_t vector_depth = width % kN == 0 ? depth : depth - 1;
    for (; k < vector_depth; ++k) {
      for (int r = 0; r < width; r += kN)
        simd::Store(panel + k * width + r, simd::Load<T>(source + k * depth_stride + r));
    }
  } else if (depth_stride == 1) {
    for (; k + kN <= depth; k += kN) {
      // From the last columns to the first, so that what a vector writes too far is overwritten.
      for (int first = (width - 1) / kN * kN; first >= 0; first -= kN) {
        const S* corner = source + first * row_stride + k;
        simd::Vector<T> square[kN];
        if (first + kN <= rows) {
#pragma GCC unroll 16
          for (int r = 0; r < kN; ++r)
            square[r] = simd::Load<T>(corner + r * row_stride);
        } else {
#pragma GCC unroll 16
          for (int r = 0; r < kN; ++r) {
            square[r] =
                first + r < rows ? simd::Load<T>(corner + r * row_stride) : simd::Vector<T>{};
          }
        }
        simd::Transpose<T>(square);
        T* out = panel + k * width + first;
#pragma GCC unroll 16
        for (int i = 0; i < kN; ++i)
          simd::Store(out + static_cast<std::int64_t>(i) * width, square[i]);
      }
    }
  }
  for (; k < depth; ++k) {
    T* out = panel + k * width;
    for (int r = 0; r < rows; ++r)
      out[r] = static_cast<T>(source[r * row_stride + k * depth_stride]);
    for (int r = rows; r < width; ++r)
      out[r] = T{};
  }
}

}  // namespace infini_train::cpu
