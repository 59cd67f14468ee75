#pragma once

#include "infini_train/kernels/cpu/gemm/gemm.h"

namespace infini_train::cpu {

/// Rows of a up to which RunSkinnyGemm is the better way.
inline constexpr std::int64_t kSkinnyRows = 4;

/// RunGemm for at most kSkinnyRows rows of a: reads every element of b once, at the speed of
/// memory, instead of packing it. The same bits for any number of threads.
void RunSkinnyGemm(const GemmProblem& problem, void* c, const void* a, const void* b,
                   const void* bias);

}  // namespace infini_train::cpu
