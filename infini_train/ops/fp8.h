#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "infini_train/core/dtype.h"
#include "infini_train/core/fp8.h"
#include "infini_train/ops/params.h"

namespace infini_train {

/// Calls `body(TypeTag<F>{})` for the storage type of a format.
template <typename Body>
decltype(auto) DispatchFp8(Fp8Format format, Body&& body) {
  return format == Fp8Format::kE4M3 ? body(TypeTag<Float8E4M3>{}) : body(TypeTag<Float8E5M2>{});
}

constexpr float LargestOf(Fp8Format format) {
  return format == Fp8Format::kE4M3 ? Float8E4M3::kLargest : Float8E5M2::kLargest;
}

/// The op Fp8UpdateScales' scale: the largest power of two, from 2^-100 to 2^100, that brings
/// 2 amax (positive and finite) to at most `largest`.
constexpr float DelayedScale(float largest, float amax) {
  // The difference of two numbers' bits is that of their exponents, less one where the fraction of
  // the second is larger.
  const int exponent =
      (std::bit_cast<std::int32_t>(largest) - std::bit_cast<std::int32_t>(amax)) >> 23;
  return std::bit_cast<float>((127 + std::clamp(exponent - 1, -100, 100)) << 23);
}

/// A scale for numbers whose magnitude is at most `bound`.
constexpr float ScaleOfBound(Fp8Format format, double bound) {
  const auto amax = static_cast<float>(bound);
  const bool is_positive = amax > 0.0f && amax <= std::numeric_limits<float>::max();
  return is_positive ? DelayedScale(LargestOf(format), amax) : 1.0f;
}

}  // namespace infini_train
