#pragma once

/// Conversions, functions and products that chips have instructions for. Part of simt_platform.h.

#include <cstdint>
#include <type_traits>

#include "backends/simt/codes.h"
#include "backends/simt/math.h"
#include "backends/simt/matrix_products.h"
#include "infini_train/core/fp8.h"

namespace infini_train::simt {

template <>
SIMT_HOST_DEVICE inline BFloat16 FromCompute<BFloat16>(float value) {
  BFloat16 result = value;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#endif
  return result;
}
template <>
SIMT_HOST_DEVICE inline Float16 FromCompute<Float16>(float value) {
  Float16 result = value;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#endif
  return result;
}
template <>
SIMT_HOST_DEVICE inline float ToCompute<Float16>(Float16 value) {
  float result = value;
#if __CUDA_ARCH__ >= 800
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
#endif
  return result;
}

template <>
SIMT_HOST_DEVICE inline float FastExp2<float>(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return std::exp2(x);
#endif
}

template <>
SIMT_HOST_DEVICE inline float FastReciprocal<float>(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return 1.0f / x;
#endif
}

template <>
SIMT_HOST_DEVICE inline float FastRsqrt<float>(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return Rsqrt(x);
#endif
}

template <>
SIMT_HOST_DEVICE inline float Max<float>(float x, float y) {
#if __CUDA_ARCH__ >= 800
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
#else
  return x > y || x != x ? x : y;
#endif
}
template <>
SIMT_HOST_DEVICE inline float Min<float>(float x, float y) {
#if __CUDA_ARCH__ >= 800
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
#else
  return x < y || x != x ? x : y;
#endif
}

// The instructions for 8 bits convert two numbers.
template <>
SIMT_HOST_DEVICE inline Float8E4M3 FromCompute<Float8E4M3>(float value) {
  Float8E4M3 result;
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  result.bits = static_cast<std::uint8_t>(pair);
#else
  result = value;
#endif
  return result;
}
template <>
SIMT_HOST_DEVICE inline Float8E5M2 FromCompute<Float8E5M2>(float value) {
  Float8E5M2 result;
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  result.bits = static_cast<std::uint8_t>(pair);
#else
  result = value;
#endif
  return result;
}

template <>
SIMT_DEVICE inline std::uint32_t PackCodes<Float8E4M3>(float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 890
  std::uint32_t codes;
  asm("{.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};}"
      : "=r"(codes)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return codes;
#else
  return detail::JoinCodes<Float8E4M3>(a, b, c, d);
#endif
}
template <>
SIMT_DEVICE inline std::uint32_t PackCodes<Float8E5M2>(float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 890
  std::uint32_t codes;
  asm("{.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e5m2x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e5m2x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};}"
      : "=r"(codes)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return codes;
#else
  return detail::JoinCodes<Float8E5M2>(a, b, c, d);
#endif
}
template <>
SIMT_DEVICE inline std::uint32_t PackHalves<BFloat16>(float low, float high) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t halves;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(high), "f"(low));
  return halves;
#else
  return detail::JoinHalves<BFloat16>(low, high);
#endif
}
template <>
SIMT_DEVICE inline std::uint32_t PackHalves<Float16>(float low, float high) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t halves;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(high), "f"(low));
  return halves;
#else
  return detail::JoinHalves<Float16>(low, high);
#endif
}
template <>
SIMT_DEVICE inline std::uint32_t SelectBytes<std::uint32_t>(std::uint32_t a, std::uint32_t b,
                                                            std::uint32_t selector) {
  return __byte_perm(a, b, selector);
}

namespace detail {

template <typename T>
struct TensorCoreProducts {
  static constexpr bool kExist = true;

  SIMT_DEVICE static void Add(float (&sums)[4], const std::uint32_t (&a)[4],
                              const std::uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<T, BFloat16>) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
          "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
          "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
#endif
  }
};

}  // namespace detail

template <>
struct MatrixProducts<BFloat16> : detail::TensorCoreProducts<BFloat16> {};
template <>
struct MatrixProducts<Float16> : detail::TensorCoreProducts<Float16> {};

}  // namespace infini_train::simt
