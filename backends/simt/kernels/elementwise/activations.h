#pragma once

#include <numbers>

#include "backends/simt/dialect.h"

/// Activation functions and their slopes, finite wherever the mathematical function is. E is the
/// type that the result is rounded to in the end.
namespace infini_train::simt {

// Comparisons are written so that a NaN operand selects x.
template <typename T>
SIMT_DEVICE T AtLeast(T x, T low) {
  return x < low ? low : x;
}
template <typename T>
SIMT_DEVICE T AtMost(T x, T high) {
  return x > high ? high : x;
}
template <typename T>
SIMT_DEVICE T Clip(T x, T limit) {
  return AtMost(AtLeast(x, -limit), limit);
}

// Beyond these, the functions are 0 or x and their slopes 0 or 1, in float and in double. Clipping
// first keeps x^3, and 0 * x at infinity, finite.
template <typename T>
inline constexpr T kGeluTanhLimit = T(11);
template <typename T>
inline constexpr T kGeluErfLimit = T(40);
template <typename T>
inline constexpr T kSiluLimit = T(1000);

template <typename T>
inline constexpr T kSqrtTwoOverPi = T(0.79788456080286535587989211986876L);
template <typename T>
inline constexpr T kSqrtHalf = std::numbers::sqrt2_v<T> / 2;
template <typename T>
inline constexpr T kGeluCubic = T(0.044715L);

/// 1 / (1 + e^-x), accurate in both tails.
template <typename E>
SIMT_DEVICE ComputeType<E> Sigmoid(ComputeType<E> x) {
  using C = ComputeType<E>;
  if constexpr (kIsHalf<E>) {
    return FastReciprocal(C(1) + FastExp2(-x * std::numbers::log2e_v<C>));
  } else {
    const C e = Exp(-Abs(x));
    return (x < C(0) ? e : C(1)) / (C(1) + e);
  }
}

template <typename E>
SIMT_DEVICE ComputeType<E> Silu(ComputeType<E> x) {
  return AtLeast(x, -kSiluLimit<ComputeType<E>>) * Sigmoid<E>(x);
}
template <typename E>
SIMT_DEVICE ComputeType<E> SiluSlope(ComputeType<E> x) {
  using C = ComputeType<E>;
  const C sigmoid = Sigmoid<E>(x);
  return sigmoid * (C(1) + Clip(x, kSiluLimit<C>) * (C(1) - sigmoid));
}

/// What GELU multiplies x by, (1 + tanh u) / 2, for half types: the sigmoid of 2 u. 0 or 1 where
/// the square of x overflows.
template <typename C>
SIMT_DEVICE C FastGeluTanhFactor(C x, C square) {
  constexpr C kFactor = -2 * kSqrtTwoOverPi<C> * std::numbers::log2e_v<C>;
  return FastReciprocal(C(1) + FastExp2(x * Fma(kFactor * kGeluCubic<C>, square, kFactor)));
}

template <typename E>
SIMT_DEVICE ComputeType<E> GeluTanh(ComputeType<E> x) {
  using C = ComputeType<E>;
  if constexpr (kIsHalf<E>) {
    return AtLeast(x, -kGeluTanhLimit<C>) * FastGeluTanhFactor(x, x * x);
  } else {
    const C clipped = Clip(x, kGeluTanhLimit<C>);
    const C u = kSqrtTwoOverPi<C> * (clipped + kGeluCubic<C> * clipped * clipped * clipped);
    return C(0.5) * AtLeast(x, -kGeluTanhLimit<C>) * (C(1) + Tanh(u));
  }
}
template <typename E>
SIMT_DEVICE ComputeType<E> GeluTanhSlope(ComputeType<E> x) {
  using C = ComputeType<E>;
  const C clipped = Clip(x, kGeluTanhLimit<C>);
  const C square = clipped * clipped;
  if constexpr (kIsHalf<E>) {
    constexpr C kFactor = 2 * kSqrtTwoOverPi<C>;
    const C factor = FastGeluTanhFactor(clipped, square);
    const C product = clipped * factor;
    const C slope = Fma(3 * kFactor * kGeluCubic<C>, square, kFactor);
    return Fma(Fma(-product, factor, product), slope, factor);
  } else {
    const C t = Tanh(kSqrtTwoOverPi<C> * (clipped + kGeluCubic<C> * square * clipped));
    const C slope = kSqrtTwoOverPi<C> * (C(1) + C(3) * kGeluCubic<C> * square);
    return C(0.5) * (C(1) + t) + C(0.5) * clipped * (C(1) - t * t) * slope;
  }
}

template <typename T>
SIMT_DEVICE T GeluErf(T x) {
  const T clipped = AtLeast(x, -kGeluErfLimit<T>);
  return T(0.5) * clipped * (T(1) + Erf(clipped * kSqrtHalf<T>));
}
template <typename T>
SIMT_DEVICE T GeluErfSlope(T x) {
  const T clipped = Clip(x, kGeluErfLimit<T>);
  const T distribution = T(0.5) * (T(1) + Erf(clipped * kSqrtHalf<T>));
  const T density = kSqrtTwoOverPi<T> * T(0.5) * Exp(T(-0.5) * clipped * clipped);
  return distribution + clipped * density;
}

}  // namespace infini_train::simt
