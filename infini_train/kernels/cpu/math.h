#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

/// Elementary functions of kernels. The float versions are branch-free, so that loops over them
/// vectorise. Their errors over the whole range, subnormals included: exp and log below 1 ulp, erf
/// 1.5 ulp, tanh and sigmoid 2.5 ulp. Infinity and NaN are treated as IEEE 754 says. The
/// polynomials are minimax fits made for these functions. The double versions are the C library's.
namespace infini_train::cpu {

#define INFINI_TRAIN_INLINE [[gnu::always_inline]] inline

// Comparisons are written so that a NaN operand selects x.
template <typename T>
INFINI_TRAIN_INLINE T AtLeast(T x, T low) {
  return x < low ? low : x;
}
template <typename T>
INFINI_TRAIN_INLINE T AtMost(T x, T high) {
  return x > high ? high : x;
}

namespace detail {

/// e^x - 1 = 2^exponent * (1 + tail) - 1 with |tail| < 0.42, for |x| up to 2^22 ln 2.
struct ExpParts {
  float tail;
  std::int32_t exponent;
};

INFINI_TRAIN_INLINE ExpParts SplitExp(float x) {
  // Adding 1.5 * 2^23 rounds to an integer, which then is in the low bits.
  constexpr float kRounder = 0x1.8p23f;
  const float shifted = x * std::numbers::log2e_v<float> + kRounder;
  const float n = shifted - kRounder;
  // ln 2 in two parts; the first has trailing zeros, so that n times it is exact.
  const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 0x1.6d723ep-10f + r * 0x1.a032c4p-13f;
  p = 0x1.11118ap-7f + r * p;
  p = 0x1.5554bp-5f + r * p;
  p = 0x1.555554p-3f + r * p;
  p = 0.5f + r * p;
  return {r + r * r * p, std::bit_cast<std::int32_t>(shifted) - 0x4B400000};
}

/// 2^exponent for exponents of normal numbers.
INFINI_TRAIN_INLINE float PowerOfTwo(std::int32_t exponent) {
  return std::bit_cast<float>((exponent + 127) << 23);
}

}  // namespace detail

INFINI_TRAIN_INLINE float Exp(float x) {
  const detail::ExpParts parts = detail::SplitExp(AtMost(AtLeast(x, -104.0f), 89.0f));
  // In two steps, since 2^exponent alone may overflow or be subnormal.
  const std::int32_t half = parts.exponent >> 1;
  return (1.0f + parts.tail) * detail::PowerOfTwo(half) * detail::PowerOfTwo(parts.exponent - half);
}
INFINI_TRAIN_INLINE double Exp(double x) {
  return std::exp(x);
}

INFINI_TRAIN_INLINE float Log(float x) {
  constexpr float kMinNormal = 0x1p-126f;
  const bool subnormal = x < kMinNormal;
  const float scaled = subnormal ? x * 0x1p23f : x;
  // Subtracting the bits of sqrt(1/2) makes the mantissa lie in [sqrt(1/2), sqrt(2)).
  const std::int32_t bits = std::bit_cast<std::int32_t>(scaled) - 0x3F3504F3;
  const std::int32_t exponent = (bits >> 23) - (subnormal ? 23 : 0);
  const float f = std::bit_cast<float>((bits & 0x007FFFFF) + 0x3F3504F3) - 1.0f;
  // ln(1 + f) = 2 atanh(s), s = f / (2 + f); f - f^2/2 is taken out of it since it is exact enough.
  const float s = f / (2.0f + f);
  const float z = s * s;
  float p = 0x1.2438a8p-2f + z * 0x1.e2fdd2p-3f;
  p = 0x1.999a7cp-2f + z * p;
  p = 0x1.555554p-1f + z * p;
  const float half_square = 0.5f * f * f;
  const float n = static_cast<float>(exponent);
  const float result =
      n * 0x1.62e4p-1f + (f - (half_square - (s * (half_square + z * p) + n * 0x1.7f7d1cp-20f)));
  const float infinity = std::bit_cast<float>(0x7F800000);
  const float beyond = x < infinity ? result : x;  // Infinity and NaN.
  const float at_zero = x == 0.0f ? -infinity : beyond;
  return x < 0.0f ? std::bit_cast<float>(0x7FC00000) : at_zero;
}
INFINI_TRAIN_INLINE double Log(double x) {
  return std::log(x);
}

INFINI_TRAIN_INLINE float Tanh(float x) {
  // tanh |x| = t / (t + 2) with t = e^(2 |x|) - 1, which is 1 in float from 9.02 on.
  const detail::ExpParts parts = detail::SplitExp(2.0f * AtMost(std::fabs(x), 10.0f));
  const float scale = detail::PowerOfTwo(parts.exponent);
  const float t = scale * parts.tail + (scale - 1.0f);
  return std::copysign(t / (t + 2.0f), x);
}
INFINI_TRAIN_INLINE double Tanh(double x) {
  return std::tanh(x);
}

/// 1 / (1 + e^-x), accurate in both tails.
template <typename T>
INFINI_TRAIN_INLINE T Sigmoid(T x) {
  const T e = Exp(-std::fabs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

INFINI_TRAIN_INLINE float Erf(float x) {
  const float t = AtMost(std::fabs(x), 4.0f);
  const float z = t * t;
  float small = -0x1.ab0966p-11f + z * 0x1.5f61bap-14f;
  small = 0x1.54df6ap-8f + z * small;
  small = -0x1.b81112p-6f + z * small;
  small = 0x1.ce2e28p-4f + z * small;
  small = -0x1.812744p-2f + z * small;
  small = 0x1.06eba8p-3f + z * small;
  // ln erfc t.
  float large = 0x1.c79f62p-12f + t * -0x1.6204dap-16f;
  large = -0x1.115d9ep-8f + t * large;
  large = 0x1.9b8f52p-6f + t * large;
  large = -0x1.bb83cep-4f + t * large;
  large = -0x1.44461ap-1f + t * large;
  large = -0x1.2127dep+0f + t * large;
  large = 0x1.6e164ep-13f + t * large;
  const float magnitude = t < 0.92f ? t + t * small : 1.0f - Exp(large);
  return std::copysign(magnitude, x);
}
INFINI_TRAIN_INLINE double Erf(double x) {
  return std::erf(x);
}

#undef INFINI_TRAIN_INLINE

}  // namespace infini_train::cpu
