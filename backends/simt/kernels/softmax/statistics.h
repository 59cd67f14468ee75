#pragma once

#include <cstdint>
#include <limits>

#include "backends/simt/packed.h"
#include "backends/simt/rows.h"

namespace infini_train::simt {

/// What is subtracted before exponentials of elements up to `largest`: 0 where there is nothing but
/// -inf, whose differences would be NaN.
template <typename C>
SIMT_DEVICE C SoftmaxShift(C largest) {
  return largest == -std::numeric_limits<C>::infinity() ? C(0) : largest;
}

/// Of a part of a row: its largest element and the sum of e^(x - Shift()), kept while one reads
/// (Milakov and Gimelshein 2018). A NaN makes the sum NaN.
template <typename C>
struct SoftmaxStatistics {
  C largest;
  C sum;

  SIMT_HOST_DEVICE static constexpr SoftmaxStatistics OfNothing() {
    return {-std::numeric_limits<C>::infinity(), C(0)};
  }

  SIMT_DEVICE C Shift() const { return SoftmaxShift(largest); }
};

/// e^(x - shift) for the elements of a row of T. Half types, which cannot hold more, get it from a
/// power of two that chips have an instruction for.
template <typename T>
class ShiftedExponential {
 public:
  using C = ComputeType<T>;

  SIMT_DEVICE explicit ShiftedExponential(C shift) : shift_(shift) {}

  SIMT_DEVICE C operator()(C x) const {
    if constexpr (kIsHalf<T>) {
      return FastExp2((x - shift_) * kLog2E);  // exact where x is the shift
    } else {
      return Exp(x - shift_);
    }
  }

 private:
  static constexpr C kLog2E = static_cast<C>(1.4426950408889634);

  C shift_;
};

struct MaxNumberOp {
  template <typename C>
  SIMT_DEVICE C operator()(C a, C b) const {
    return MaxNumber(a, b);
  }
};

/// The statistics of all lanes' parts of a row. Every lane of the team must call it.
template <typename Team, typename C>
SIMT_DEVICE SoftmaxStatistics<C> ReduceStatistics(SoftmaxStatistics<C> part,
                                                  Place place = Place::current()) {
  constexpr auto kNothing = SoftmaxStatistics<C>::OfNothing();
  const C largest = Team::Reduce(part.largest, MaxNumberOp{}, kNothing.largest, place);
  const C scale = part.largest == largest ? C(1) : Exp(part.largest - largest);
  return {largest, Team::Reduce(part.sum * scale, SumOp{}, kNothing.sum, place)};
}

/// Gathers this lane's statistics of a row: a body for WalkRow.
template <typename T>
struct StatisticsOfRow {
  using C = ComputeType<T>;
  const T* row;
  SoftmaxStatistics<C> value;

  template <int M>
  SIMT_DEVICE void Visit(std::int64_t i) {
    const Vec<T, M> x[1] = {Load<M>(row + i)};
    Take(x);
  }

  template <int M, int kCount>
  SIMT_DEVICE void Take(const Vec<T, M> (&x)[kCount]) {
    C largest = value.largest;
    SIMT_UNROLL
    for (int v = 0; v < kCount; ++v) {
      C numbers[M];
      Packed<T, M>(x[v]).Widen(numbers);
      for (int k = 0; k < M; ++k)
        largest = MaxNumber(largest, numbers[k]);
    }
    Raise(largest);
    Add(x);
  }

  /// Makes `largest` the largest element, if it is.
  SIMT_DEVICE void Raise(C largest) {
    if (largest > value.largest) {
      value.sum *= Exp(value.largest - largest);
      value.largest = largest;
    }
  }

  /// Takes elements none of which is above the largest one.
  template <int M, int kCount>
  SIMT_DEVICE void Add(const Vec<T, M> (&x)[kCount]) {
    const ShiftedExponential<T> exponential(value.Shift());
    C sum = 0;
    SIMT_UNROLL
    for (int v = 0; v < kCount; ++v) {
      C numbers[M];
      Packed<T, M>(x[v]).Widen(numbers);
      for (int k = 0; k < M; ++k)
        sum += exponential(numbers[k]);
    }
    value.sum += sum;
  }
};

/// The statistics of a row of a team, in one read.
template <typename Team, int N, typename T>
SIMT_DEVICE SoftmaxStatistics<ComputeType<T>> RowStatistics(const T* row, std::int64_t size) {
  StatisticsOfRow<T> body{row, SoftmaxStatistics<ComputeType<T>>::OfNothing()};
  WalkRow<Team, N>(row, size, body);
  return ReduceStatistics<Team>(body.value);
}

}  // namespace infini_train::simt
