#pragma once

/// Conversions and functions that chips have instructions for. Part of simt_platform.h.

#include "backends/simt/math.h"
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

}  // namespace infini_train::simt
