#include "infini_train/ops/matmul_precision.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <utility>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

std::atomic<MatmulPrecision>& Policy() {
  static std::atomic<MatmulPrecision> policy = MatmulPrecision::kFloat32;
  return policy;
}

}  // namespace

void SetMatmulPrecision(MatmulPrecision precision) noexcept {
  Policy() = precision;
}

MatmulPrecision GetMatmulPrecision() noexcept {
  return Policy();
}

MatmulPrecision ParseMatmulPrecision(std::string_view name) {
  using enum MatmulPrecision;
  constexpr std::array<std::pair<std::string_view, MatmulPrecision>, 5> kNames = {
      {{"fp64", kFloat64},
       {"fp32", kFloat32},
       {"tf32", kTf32},
       {"bf16", kBFloat16},
       {"fp8", kFp8}}};
  for (const auto& [known, precision] : kNames) {
    if (name == known) return precision;
  }
  throw Error(
      fmt::format("matmul_precision: expected fp64, fp32, tf32, bf16 or fp8, got {}", name));
}

}  // namespace infini_train
