#pragma once

#include <cstdint>
#include <string_view>

#include "infini_train/core/api.h"

namespace infini_train {

/// How matrix products treat float32 operands, and how transformer linears are computed.
enum class MatmulPrecision : std::uint8_t {
  kFloat64,   ///< products and sums of float32 and lower types in float64, for precision work
  kFloat32,   ///< products of float32 in float32
  kTf32,      ///< float32 operands may be rounded to TF32 (10 bits of mantissa)
  kBFloat16,  ///< float32 operands may be rounded to bfloat16
  kFp8,       ///< as kFloat32, and linears of transformer blocks in FP8 with delayed scaling
};

/// The process's policy, kFloat32 at the start. "May": a device without a faster way keeps float32.
/// A captured graph keeps the policy of its capture.
INFINI_TRAIN_API void SetMatmulPrecision(MatmulPrecision precision) noexcept;
INFINI_TRAIN_API MatmulPrecision GetMatmulPrecision() noexcept;

/// "fp64", "fp32", "tf32", "bf16" or "fp8". Throws Error naming these otherwise.
INFINI_TRAIN_API MatmulPrecision ParseMatmulPrecision(std::string_view name);

}  // namespace infini_train
