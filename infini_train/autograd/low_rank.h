#pragma once

#include <cstdint>
#include <span>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"

/// Low-rank additions to the output of a linear function (Hu et al., "LoRA: low-rank adaptation of
/// large language models", 2021).
namespace infini_train {

/// Adds scale * (x aᵀ) bᵀ to the features [row, row + b.size(0)) of y.
struct LowRankTerm {
  Tensor a;  ///< [rank, in]
  Tensor b;  ///< [features, rank]
  std::int64_t row = 0;
};

/// y [.., out] plus each of the terms of x [.., in], computed in y's type. y is a fresh result, and
/// is overwritten; differentiable in y, x and the terms. Throws Error where shapes do not fit.
INFINI_TRAIN_API Tensor AddLowRank(const Tensor& y, const Tensor& x,
                                   std::span<const LowRankTerm> terms, double scale);

}  // namespace infini_train
