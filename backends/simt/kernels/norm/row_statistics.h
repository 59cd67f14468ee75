#pragma once

#include <cstdint>

#include "backends/simt/kernels/norm/norm_row.h"

namespace infini_train::simt {

template <typename T, int N>
struct SumElements {
  ComputeType<T> sum = 0;

  SIMT_DEVICE void operator()(std::int64_t, const Vec<T, N>& x) {
    ComputeType<T> part = 0;
    for (int k = 0; k < N; ++k)
      part += ToCompute(x[k]);
    sum += part;
  }
};

template <typename T, int N>
struct SumSquares {
  ComputeType<T> mean;
  ComputeType<T> sum = 0;

  SIMT_DEVICE void operator()(std::int64_t, const Vec<T, N>& x) {
    ComputeType<T> part = 0;
    for (int k = 0; k < N; ++k) {
      const ComputeType<T> difference = ToCompute(x[k]) - mean;
      part += difference * difference;
    }
    sum += part;
  }
};

/// What a row is normalised by.
template <typename C>
struct NormStatistics {
  C mean;
  C rstd;
};

/// Those of LayerNorm where centered, else of RMSNorm, whose mean is 0. The variance is summed over
/// differences to the mean, since the difference of two large sums would lose it.
template <typename Team, int N, bool centered, typename T>
SIMT_DEVICE NormStatistics<ComputeType<T>> RowNormStatistics(const CachedRow<Team, T, N>& row,
                                                             std::int64_t hidden,
                                                             ComputeType<T> eps) {
  using C = ComputeType<T>;
  C mean = 0;
  if constexpr (centered) {
    SumElements<T, N> elements;
    row.ForEach(elements);
    mean = Team::Reduce(elements.sum, SumOp{}, C(0)) / static_cast<C>(hidden);
  }
  SumSquares<T, N> squares{mean};
  row.ForEach(squares);
  const C variance = Team::Reduce(squares.sum, SumOp{}, C(0)) / static_cast<C>(hidden);
  return {mean, C(1) / Sqrt(variance + eps)};
}

}  // namespace infini_train::simt
