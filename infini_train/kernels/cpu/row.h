#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "infini_train/core/half.h"
#include "infini_train/kernels/cpu/parallel.h"

namespace infini_train::cpu {

/// Partial results that a reduction keeps side by side: enough registers to hide the latency of an
/// addition. Fixed, so that the order of a sum depends on nothing but its length.
template <typename C>
inline constexpr std::int64_t kReduceLanes = 128 / sizeof(C);

/// Elements that are summed in C before their sum joins a float64 total.
inline constexpr std::int64_t kReduceBlock = 1024;

namespace detail {

template <typename C, typename Add>
[[gnu::always_inline]] inline C FoldLanes(C (&lanes)[kReduceLanes<C>], const Add& add) {
  for (std::int64_t width = kReduceLanes<C> / 2; width > 0; width /= 2) {
    for (std::int64_t l = 0; l < width; ++l)
      lanes[l] = add(lanes[l], lanes[l + width]);
  }
  return lanes[0];
}

}  // namespace detail

/// Sums over i in [begin, end) of several functions `C value(i)` in one pass. The functions are
/// branch-free, so that the loop vectorises. The relative error is that of 32 additions in C,
/// whatever the length.
template <typename C, typename... Values>
[[gnu::always_inline]] inline std::array<double, sizeof...(Values)> Sums(std::int64_t begin,
                                                                         std::int64_t end,
                                                                         const Values&... values) {
  constexpr std::int64_t kLanes = kReduceLanes<C>;
  std::array<double, sizeof...(Values)> totals = {};
  while (begin < end) {
    const std::int64_t stop = end - begin < kReduceBlock ? end : begin + kReduceBlock;
    C lanes[sizeof...(Values)][kLanes] = {};
    for (; begin + kLanes <= stop; begin += kLanes) {
#pragma omp simd
      for (std::int64_t l = 0; l < kLanes; ++l) {
        std::size_t k = 0;
        ((lanes[k++][l] += values(begin + l)), ...);
      }
    }
    const std::int64_t rest = stop - begin;
#pragma omp simd
    for (std::int64_t l = 0; l < rest; ++l) {
      std::size_t k = 0;
      ((lanes[k++][l] += values(begin + l)), ...);
    }
    begin = stop;
    for (std::size_t k = 0; k < sizeof...(Values); ++k)
      totals[k] += detail::FoldLanes<C>(lanes[k], [](C a, C b) { return a + b; });
  }
  return totals;
}

/// The largest `C value(i)` over [begin, end), -inf where that is empty. NaN values are passed
/// over.
template <typename C, typename Value>
[[gnu::always_inline]] inline C Largest(std::int64_t begin, std::int64_t end, const Value& value) {
  constexpr std::int64_t kLanes = kReduceLanes<C>;
  const auto larger = [](C a, C b) { return b > a ? b : a; };
  C lanes[kLanes];
  for (C& lane : lanes)
    lane = -std::numeric_limits<C>::infinity();
  for (; begin + kLanes <= end; begin += kLanes) {
#pragma omp simd
    for (std::int64_t l = 0; l < kLanes; ++l)
      lanes[l] = larger(lanes[l], value(begin + l));
  }
#pragma omp simd
  for (std::int64_t l = 0; l < end - begin; ++l)
    lanes[l] = larger(lanes[l], value(begin + l));
  return detail::FoldLanes<C>(lanes, larger);
}

/// out = value, rounded to T. Half types are stored through their bits, since GCC does not
/// vectorise loops that copy a struct.
template <typename T, typename C>
[[gnu::always_inline]] inline void Store(T& out, C value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    out.bits = T(static_cast<float>(value)).bits;
  } else {
    out = static_cast<T>(value);
  }
}

}  // namespace infini_train::cpu
