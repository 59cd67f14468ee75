#pragma once

#include <cstdint>

#include "backends/simt/kernels/softmax/statistics.h"

namespace infini_train::simt {

/// The gradient of a row's cross-entropy with respect to logits: (softmax - one_hot) * scale.
template <typename T>
struct LogitsGradient {
  using C = ComputeType<T>;
  ShiftedExponential<T> probability;
  C lse;
  C scale;
  std::int64_t target;

  SIMT_DEVICE LogitsGradient(C lse, C scale, std::int64_t target)
      : probability(lse), lse(lse), scale(scale), target(target) {}

  /// That of the logits x from class i on.
  template <int M>
  SIMT_DEVICE Vec<T, M> At(std::int64_t i, const Vec<T, M>& x) const {
    C numbers[M];
    ElsewhereAt(numbers, x);
    Vec<T, M> results;
    for (int k = 0; k < M; ++k)
      results[k] = FromCompute<T>(numbers[k]);
    const std::int64_t hot = target - i;
    if (hot >= 0 && hot < M) {
      C logit = 0;
      SIMT_UNROLL
      for (int k = 0; k < M; ++k)
        logit = k == hot ? ToCompute(x[k]) : logit;
      const T result = FromCompute<T>(AtTarget(logit));
      for (int k = 0; k < M; ++k)
        results[k] = k == hot ? result : results[k];
    }
    return results;
  }

  /// That of logits that are not the target's, not rounded.
  template <int M>
  SIMT_DEVICE void ElsewhereAt(C (&numbers)[M], const Vec<T, M>& x) const {
    Packed<T, M>(x).Widen(numbers);
    for (int k = 0; k < M; ++k)
      numbers[k] = probability(numbers[k]) * scale;
  }

  /// That of the target's logit: p - 1 without its cancellation.
  SIMT_DEVICE C AtTarget(C logit) const { return Expm1(logit - lse) * scale; }
};

/// What a row's gradient is where its target is ignored (0) or not in the vocabulary (NaN).
template <typename T>
struct FillRow {
  T* out;
  T value;

  template <int M>
  SIMT_DEVICE void Visit(std::int64_t i) {
    Vec<T, M> values;
    for (int k = 0; k < M; ++k)
      values[k] = value;
    Store(out + i, values);
  }
};

}  // namespace infini_train::simt
