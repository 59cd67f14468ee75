#pragma once

#include "infini_train/kernels/cpu/gemm/gemm.h"

namespace infini_train::cpu {

/// Whether oneDNN multiplies matrices of this type with instructions that the blocked kernel has
/// not, on this machine.
bool IsOneDnnFaster(DataType input);

/// RunGemm by oneDNN's matmul, with primitives cached by problem and number of threads. Takes
/// row-major c. False, with nothing done, where oneDNN has no fast implementation.
bool TryOneDnnGemm(const GemmProblem& problem, void* c, const void* a, const void* b,
                   const void* bias);

}  // namespace infini_train::cpu
