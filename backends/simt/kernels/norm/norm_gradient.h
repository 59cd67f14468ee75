#pragma once

#include <cstdint>

#include "backends/simt/kernels/norm/norm_row.h"

namespace infini_train::simt {

/// Two sums of a row, found in one reduction.
template <typename C>
struct Pair {
  C g;
  C g_n;
};
struct AddPairs {
  template <typename C>
  SIMT_DEVICE Pair<C> operator()(Pair<C> a, Pair<C> b) const {
    return {a.g + b.g, a.g_n + b.g_n};
  }
};

/// The gradient of one row, with g = grad_y * weight and n = (x - mean) * rstd. Vectors of the
/// weight are `w`.
template <typename T, int N, bool centered>
struct GradientRow {
  using C = ComputeType<T>;
  C mean;
  C rstd;

  SIMT_DEVICE C Normalized(T x) const {
    return (centered ? ToCompute(x) - mean : ToCompute(x)) * rstd;
  }

  SIMT_DEVICE void AddTo(Pair<C>& sums, const C (&w)[N], const Vec<T, N>& x,
                         const Vec<T, N>& grad_y) const {
    Pair<C> part{0, 0};
    for (int k = 0; k < N; ++k) {
      const C g = ToCompute(grad_y[k]) * w[k];
      part.g += g;
      part.g_n += g * Normalized(x[k]);
    }
    sums.g += part.g;
    sums.g_n += part.g_n;
  }

  /// rstd * (g - mean(g) - n * mean(g * n)) + direct, without mean(g) where not centered.
  SIMT_DEVICE void GradX(C (&results)[N], Pair<C> means, const C (&w)[N], const Vec<T, N>& x,
                         const Vec<T, N>& grad_y, const Vec<T, N>& direct) const {
    for (int k = 0; k < N; ++k) {
      const C g = ToCompute(grad_y[k]) * w[k];
      const C from_mean = centered ? g - means.g : g;
      results[k] = rstd * (from_mean - Normalized(x[k]) * means.g_n) + ToCompute(direct[k]);
    }
  }
};

/// Sums of columns that a block makes: for the weight, for the bias where centered, and of grad_x
/// where sums_x.
template <bool centered, bool sums_x>
inline constexpr int kColumnSums = 1 + (centered ? 1 : 0) + (sums_x ? 1 : 0);

/// What a kernel of the backward works on. grad_sum and partials may be null; partials has a row of
/// kColumnSums times hidden for each block.
template <typename T>
struct NormBackwardArguments {
  using C = ComputeType<T>;
  T* grad_x;
  C* partials;
  const T* grad_y;
  const T* grad_sum;
  const T* x;
  NormParameter<T> weight;
  const C* mean;
  const C* rstd;
  std::int64_t rows, hidden;

  /// The vector from element i on, of all rows' elements, of what is added to the gradient.
  template <int N>
  SIMT_DEVICE Vec<T, N> Direct(std::int64_t i) const {
    if (grad_sum == nullptr) return Vec<T, N>{};
    return Load<N>(grad_sum + i);
  }
};

}  // namespace infini_train::simt
