#pragma once

#include <numbers>

#include "backends/simt/dialect.h"

/// Activation functions and their slopes, finite wherever the mathematical function is.
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
inline constexpr T kGeluTanhLimit = T(10);
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
template <typename T>
SIMT_DEVICE T Sigmoid(T x) {
  const T e = Exp(-Abs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

template <typename T>
SIMT_DEVICE T Silu(T x) {
  return AtLeast(x, -kSiluLimit<T>) * Sigmoid(x);
}
/// d Silu / dx, from x and its sigmoid.
template <typename T>
SIMT_DEVICE T SiluSlope(T x, T sigmoid) {
  return sigmoid * (T(1) + Clip(x, kSiluLimit<T>) * (T(1) - sigmoid));
}

template <typename T>
SIMT_DEVICE T GeluTanh(T x) {
  const T clipped = Clip(x, kGeluTanhLimit<T>);
  const T u = kSqrtTwoOverPi<T> * (clipped + kGeluCubic<T> * clipped * clipped * clipped);
  return T(0.5) * AtLeast(x, -kGeluTanhLimit<T>) * (T(1) + Tanh(u));
}
template <typename T>
SIMT_DEVICE T GeluTanhSlope(T x) {
  const T clipped = Clip(x, kGeluTanhLimit<T>);
  const T square = clipped * clipped;
  const T t = Tanh(kSqrtTwoOverPi<T> * (clipped + kGeluCubic<T> * square * clipped));
  const T slope = kSqrtTwoOverPi<T> * (T(1) + T(3) * kGeluCubic<T> * square);
  return T(0.5) * (T(1) + t) + T(0.5) * clipped * (T(1) - t * t) * slope;
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
