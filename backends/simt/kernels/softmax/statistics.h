#pragma once

#include <cstdint>
#include <limits>

#include "backends/simt/rows.h"

namespace infini_train::simt {

/// Of a part of a row: its largest element and the sum of e^(x - Shift()), kept while one reads
/// (Milakov and Gimelshein 2018). A NaN makes the sum NaN.
template <typename C>
struct SoftmaxStatistics {
  C largest;
  C sum;

  SIMT_HOST_DEVICE static constexpr SoftmaxStatistics OfNothing() {
    return {-std::numeric_limits<C>::infinity(), C(0)};
  }

  /// What is subtracted before exponentials: 0 where there is nothing but -inf, whose differences
  /// would be NaN.
  SIMT_DEVICE C Shift() const {
    return largest == -std::numeric_limits<C>::infinity() ? C(0) : largest;
  }
};

/// Symmetric to the last bit, so that all lanes of a butterfly get the same.
struct MergeStatistics {
  template <typename C>
  SIMT_DEVICE SoftmaxStatistics<C> operator()(SoftmaxStatistics<C> a,
                                              SoftmaxStatistics<C> b) const {
    if (a.largest < b.largest) {
      const SoftmaxStatistics<C> larger = b;
      b = a;
      a = larger;
    }
    const C scale = a.largest == b.largest ? C(1) : Exp(b.largest - a.largest);
    return {a.largest, a.sum + b.sum * scale};
  }
};

/// Gathers this lane's statistics of a row: a body for WalkRow.
template <typename T>
struct StatisticsOfRow {
  using C = ComputeType<T>;
  const T* row;
  SoftmaxStatistics<C> value;

  template <int M>
  SIMT_DEVICE void Visit(std::int64_t i) {
    const Vec<T, M> x = Load<M>(row + i);
    C largest = value.largest;
    for (int k = 0; k < M; ++k)
      largest = ToCompute(x[k]) > largest ? ToCompute(x[k]) : largest;
    if (largest > value.largest) {
      value.sum *= Exp(value.largest - largest);
      value.largest = largest;
    }
    const C shift = value.Shift();
    C sum = 0;
    for (int k = 0; k < M; ++k)
      sum += Exp(ToCompute(x[k]) - shift);
    value.sum += sum;
  }
};

/// The statistics of a row of a team, in one read.
template <typename Team, int N, typename T>
SIMT_DEVICE SoftmaxStatistics<ComputeType<T>> RowStatistics(const T* row, std::int64_t size) {
  constexpr auto kNothing = SoftmaxStatistics<ComputeType<T>>::OfNothing();
  StatisticsOfRow<T> body{row, kNothing};
  WalkRow<Team, N>(row, size, body);
  return Team::Reduce(body.value, MergeStatistics{}, kNothing);
}

}  // namespace infini_train::simt
