#pragma once

#include "infini_train/kernels/cpu/gemm/gemm.h"

namespace infini_train::cpu {

/// RunGemm by packing and register-blocked micro-kernels (Goto and van de Geijn, "Anatomy of
/// High-Performance Matrix Multiplication", 2008). Takes any strides and every floating type; the
/// half types are converted to float while packing. The same bits for any number of threads.
void RunBlockedGemm(const GemmProblem& problem, void* c, const void* a, const void* b,
                    const void* bias);

}  // namespace infini_train::cpu
