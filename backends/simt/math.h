#pragma once

#include <cmath>
#include <type_traits>

#include "infini_train/core/dtype.h"

namespace infini_train::simt {

/// The number that arithmetic on T runs in: float for the half types, else T itself.
template <typename T>
SIMT_HOST_DEVICE constexpr ComputeType<T> ToCompute(T value) {
  return static_cast<ComputeType<T>>(value);
}

/// The inverse, rounded to nearest.
template <typename T>
SIMT_HOST_DEVICE constexpr T FromCompute(std::type_identity_t<ComputeType<T>> value) {
  return static_cast<T>(value);
}

// Functions of float and double: `Exp(x)` has x's type. Compilers for devices take the functions of
// <cmath> as their own.

#define SIMT_UNARY_FUNCTION(Name, name)                                      \
  template <typename T>                                                      \
  requires std::is_floating_point_v<T> SIMT_HOST_DEVICE inline T Name(T x) { \
    return std::name(x);                                                     \
  }
SIMT_UNARY_FUNCTION(Exp, exp)
SIMT_UNARY_FUNCTION(Expm1, expm1)
SIMT_UNARY_FUNCTION(Log, log)
SIMT_UNARY_FUNCTION(Log1p, log1p)
SIMT_UNARY_FUNCTION(Sqrt, sqrt)
SIMT_UNARY_FUNCTION(Tanh, tanh)
SIMT_UNARY_FUNCTION(Erf, erf)
SIMT_UNARY_FUNCTION(Sin, sin)
SIMT_UNARY_FUNCTION(Cos, cos)
SIMT_UNARY_FUNCTION(Floor, floor)
#undef SIMT_UNARY_FUNCTION

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

/// 2^x with an error of about 2^-21 of the result, and 0 for results below the normal numbers: for
/// what is rounded to a half type in the end. Platforms may have an instruction for it.
template <typename T>
requires std::is_floating_point_v<T> SIMT_HOST_DEVICE inline T FastExp2(T x) {
  return std::exp2(x);
}

/// 1 / x of a positive x with an error of about 2^-21 of the result, and maybe 0 for results below
/// the normal numbers: for what is rounded to a half type in the end. Platforms may have an
/// instruction for it.
template <typename T>
requires std::is_floating_point_v<T> SIMT_HOST_DEVICE inline T FastReciprocal(T x) {
  return T{1} / x;
}

/// The reciprocal of the square root, rounded twice.
template <typename T>
requires std::is_floating_point_v<T> SIMT_HOST_DEVICE inline T Rsqrt(T x) {
  return T{1} / std::sqrt(x);
}

/// The same of a positive x with an error of about 2^-21 of the result: for what is rounded to a
/// half type in the end. Platforms may have an instruction for it.
template <typename T>
requires std::is_floating_point_v<T> SIMT_HOST_DEVICE inline T FastRsqrt(T x) {
  return Rsqrt(x);
}

/// For what is rounded to T in the end.
template <typename T>
SIMT_HOST_DEVICE inline ComputeType<T> RsqrtFor(ComputeType<T> x) {
  if constexpr (kIsHalf<T>) {
    return FastRsqrt(x);
  } else {
    return Rsqrt(x);
  }
}

template <typename T>
requires std::is_floating_point_v<T> SIMT_HOST_DEVICE inline T Pow(
    T x, std::type_identity_t<T> exponent) {
  return std::pow(x, exponent);
}

/// x * y + z, rounded once.
template <typename T>
requires std::is_floating_point_v<T> SIMT_HOST_DEVICE inline T Fma(T x, std::type_identity_t<T> y,
                                                                   std::type_identity_t<T> z) {
  return std::fma(x, y, z);
}

template <typename T>
SIMT_HOST_DEVICE constexpr bool IsNan(T x) {
  return x != x;
}

template <typename T>
SIMT_HOST_DEVICE inline T Abs(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fabs(x);
  } else {
    return x < T{0} ? -x : x;
  }
}

/// The larger one; NaN if either is.
template <typename T>
SIMT_HOST_DEVICE constexpr T Max(T x, std::type_identity_t<T> y) {
  return x > y || x != x ? x : y;
}

/// The larger one; the other one where one is NaN.
template <typename T>
requires std::is_floating_point_v<T> SIMT_HOST_DEVICE inline T MaxNumber(
    T x, std::type_identity_t<T> y) {
  return std::fmax(x, y);
}

/// The smaller one; NaN if either is.
template <typename T>
SIMT_HOST_DEVICE constexpr T Min(T x, std::type_identity_t<T> y) {
  return x < y || x != x ? x : y;
}

}  // namespace infini_train::simt
