#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "backends/simt/dialect.h"
#include "infini_train/core/dtype.h"

/// The ways to combine elements. A reducer of stored elements T has
///
///   Partial, Accumulator   what up to kChain elements, and what any number of them, add up to
///   Out                    the stored type of results
///   kMayBeWide             whether a lane may make several results at a time (a kernel more)
///   Empty()                the partial result of no element
///   Take(partial, x, i)    the partial result with element i of the reduced dimensions
///   Widen(partial)         a partial result as an accumulator
///   Combine(a, b)          two accumulators as one
///   Finish(accumulator)    the result
namespace infini_train::simt {

/// Elements that one lane combines in Partial before it widens the result.
inline constexpr int kChain = 32;

/// Sum, times a factor: chains in the compute type, then float64 (as is the quotient of a mean), or
/// wrapping 64-bit integers.
template <typename T, typename O = T>
struct SumReducer {
  using Partial = std::conditional_t<std::is_integral_v<T>, std::uint64_t, ComputeType<T>>;
  using Accumulator = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;
  using Out = O;
  static constexpr bool kMayBeWide = !std::is_integral_v<T>;

  double divisor = 1;

  SIMT_DEVICE Partial Empty() const { return Partial(0); }
  SIMT_DEVICE Partial Take(Partial sum, T x, std::int64_t) const {
    return sum + static_cast<Partial>(ToCompute(x));
  }
  SIMT_DEVICE Accumulator Widen(Partial sum) const { return static_cast<Accumulator>(sum); }
  SIMT_DEVICE Accumulator Combine(Accumulator a, Accumulator b) const { return a + b; }
  SIMT_DEVICE O Finish(Accumulator sum) const {
    if constexpr (std::is_integral_v<O>) {
      return static_cast<O>(sum);
    } else {
      return FromCompute<O>(static_cast<ComputeType<O>>(sum / divisor));
    }
  }
};

/// Whether `b` goes before `a` as the largest (smallest) number; a NaN goes before all numbers.
template <typename C>
SIMT_DEVICE bool Beats(C b, C a, bool smallest) {
  return (smallest ? b < a : b > a) || (IsNan(b) && !IsNan(a));
}

/// What every number beats or equals.
template <typename C>
SIMT_DEVICE C Beaten(bool smallest) {
  if constexpr (std::is_floating_point_v<C>) {
    return smallest ? std::numeric_limits<C>::infinity() : -std::numeric_limits<C>::infinity();
  } else {
    return smallest ? std::numeric_limits<C>::max() : std::numeric_limits<C>::min();
  }
}

/// The largest or smallest element, NaN if any is.
template <typename T>
struct ExtremeReducer {
  using Partial = ComputeType<T>;
  using Accumulator = Partial;
  using Out = T;
  static constexpr bool kMayBeWide = false;

  bool smallest = false;

  SIMT_DEVICE Partial Empty() const { return Beaten<Partial>(smallest); }
  SIMT_DEVICE Partial Take(Partial best, T x, std::int64_t) const {
    return Combine(best, ToCompute(x));
  }
  SIMT_DEVICE Accumulator Widen(Partial best) const { return best; }
  SIMT_DEVICE Accumulator Combine(Accumulator a, Accumulator b) const {
    return Beats(b, a, smallest) ? b : a;
  }
  SIMT_DEVICE T Finish(Accumulator best) const { return FromCompute<T>(best); }
};

/// A number and where it is; -1 for nowhere.
template <typename C>
struct Placed {
  C value;
  std::int64_t place;
};

/// The position of the first of the largest or smallest elements, or of the first NaN.
template <typename T>
struct PositionReducer {
  using Partial = Placed<ComputeType<T>>;
  using Accumulator = Partial;
  using Out = std::int64_t;
  static constexpr bool kMayBeWide = false;

  bool smallest = false;

  SIMT_DEVICE Partial Empty() const { return {Beaten<ComputeType<T>>(smallest), -1}; }
  SIMT_DEVICE Partial Take(Partial best, T x, std::int64_t place) const {
    return Combine(best, {ToCompute(x), place});
  }
  SIMT_DEVICE Accumulator Widen(Partial best) const { return best; }
  SIMT_DEVICE Accumulator Combine(Accumulator a, Accumulator b) const {
    if (a.place < 0 || b.place < 0) return a.place < 0 ? b : a;
    if (Beats(b.value, a.value, smallest)) return b;
    if (Beats(a.value, b.value, smallest)) return a;
    return b.place < a.place ? b : a;
  }
  SIMT_DEVICE std::int64_t Finish(Accumulator best) const { return best.place; }
};

}  // namespace infini_train::simt
