#pragma once

#include <cstdint>

#include "backends/simt/kernels/norm/norm_row.h"

namespace infini_train::simt {

/// What a row is normalised by.
template <typename C>
struct NormStatistics {
  C mean;
  C rstd;
};

/// Those of LayerNorm where centered, else of RMSNorm, whose mean is 0. The variance is summed over
/// differences to the mean, since the difference of two large sums would lose it.
template <bool centered, typename Row, typename C = typename Row::C>
SIMT_DEVICE NormStatistics<C> RowNormStatistics(const Row& row, std::int64_t hidden, C eps) {
  using Team = typename Row::Team;
  using Numbers = C[Row::kWidth];
  C mean = 0;
  if constexpr (centered) {
    C sum = 0;
    row.ForEach([&](std::int64_t, const Numbers& x) {
      C part = 0;
      SIMT_UNROLL
      for (int k = 0; k < Row::kWidth; ++k)
        part += x[k];
      sum += part;
    });
    mean = Team::Reduce(sum, SumOp{}, C(0)) / static_cast<C>(hidden);
  }
  C squares = 0;
  row.ForEach([&](std::int64_t, const Numbers& x) {
    C part = 0;
    SIMT_UNROLL
    for (int k = 0; k < Row::kWidth; ++k) {
      const C difference = x[k] - mean;
      part += difference * difference;
    }
    squares += part;
  });
  const C variance = Team::Reduce(squares, SumOp{}, C(0)) / static_cast<C>(hidden);
  return {mean, C(1) / Sqrt(variance + eps)};
}

}  // namespace infini_train::simt
