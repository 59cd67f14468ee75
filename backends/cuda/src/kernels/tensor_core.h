#pragma once

#include <cstdint>

#include "backends/simt/dialect.h"

/// Instructions that bring the half types to tensor cores, of compute capability 8.0, beside the
/// dialect's MatrixProducts. On older chips the functions do nothing.
namespace infini_train::cuda {

/// An address in shared memory as the instructions take it.
SIMT_DEVICE inline std::uint32_t SharedAddress(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Starts to copy 16 bytes from global to shared memory, or to set them to 0 where not `inside`.
SIMT_DEVICE inline void CopyAsync(std::uint32_t to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
#endif
}

/// Loads four matrices of 8 rows of 16 bytes; lane i has the address of row i % 8 of matrix i / 8.
/// Matrix j goes to words[j]: lane i has elements 2 (i % 4) and the next one of row i / 4, or, of
/// transposed matrices, of column i / 4.
template <bool kTransposed>
SIMT_DEVICE inline void LoadMatrices(std::uint32_t (&words)[4], std::uint32_t address) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  }
#endif
}

/// Writes two numbers, without a detour by integers: sums that are being computed must stay in
/// their registers.
SIMT_DEVICE inline void StorePair(float* to, float first, float second) {
  asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(first), "f"(second) : "memory");
}

}  // namespace infini_train::cuda
