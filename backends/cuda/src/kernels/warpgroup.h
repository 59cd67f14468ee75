#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/simt/dialect.h"

/// Instructions for products by groups of four warps, which read both operands from shared memory
/// while the warps go on: of compute capability 9.0, and only where that is compiled for as 9.0a
/// (PTX ISA, "Asynchronous warpgroup level matrix instructions"). Elsewhere the functions do
/// nothing.
namespace infini_train::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define INFINI_TRAIN_WARPGROUPS 1
#else
#define INFINI_TRAIN_WARPGROUPS 0
#endif

/// Makes what was written to shared memory visible to products.
SIMT_DEVICE inline void FenceForProducts() {
#if INFINI_TRAIN_WARPGROUPS
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/// Before the first product of a group, after sums were read or written.
SIMT_DEVICE inline void BeginProducts() {
#if INFINI_TRAIN_WARPGROUPS
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
SIMT_DEVICE inline void CommitProducts() {
#if INFINI_TRAIN_WARPGROUPS
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/// Waits until at most kPending groups of products, the last ones, are under way.
template <int kPending>
SIMT_DEVICE inline void WaitForProducts() {
#if INFINI_TRAIN_WARPGROUPS
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
}

/// An operand in rows of 128 bytes, of which chunk c (16 bytes) of row r lies at c ^ (r % 8), from
/// an address that is a multiple of 1024 on, or a multiple of 32 bytes behind it in the first row.
/// `piece_bytes`: where rows lie along the output, from 64 elements to the next 64.
SIMT_DEVICE inline std::uint64_t DescribeOperand(std::uint32_t address, std::uint32_t piece_bytes) {
  constexpr std::uint64_t kSwizzle128Bytes = std::uint64_t{1} << 62;
  constexpr std::uint64_t kEightRows = 8 * 128;
  return kSwizzle128Bytes | (kEightRows >> 4) << 32 |
         static_cast<std::uint64_t>(piece_bytes >> 4) << 16 | ((address & 0x3FFFF) >> 4);
}

#define INFINI_TRAIN_FOUR_SUMS(j) "+f"(s[j][0]), "+f"(s[j][1]), "+f"(s[j][2]), "+f"(s[j][3])
#define INFINI_TRAIN_SIXTEEN_SUMS(j)                                                       \
  INFINI_TRAIN_FOUR_SUMS(j), INFINI_TRAIN_FOUR_SUMS(j + 1), INFINI_TRAIN_FOUR_SUMS(j + 2), \
      INFINI_TRAIN_FOUR_SUMS(j + 3)
#define INFINI_TRAIN_ALL_SUMS                                                                      \
  INFINI_TRAIN_SIXTEEN_SUMS(0), INFINI_TRAIN_SIXTEEN_SUMS(4), INFINI_TRAIN_SIXTEEN_SUMS(8),        \
      INFINI_TRAIN_SIXTEEN_SUMS(12), INFINI_TRAIN_SIXTEEN_SUMS(16), INFINI_TRAIN_SIXTEEN_SUMS(20), \
      INFINI_TRAIN_SIXTEEN_SUMS(24), INFINI_TRAIN_SIXTEEN_SUMS(28)

/// Keeps the compiler from moving uses of the sums across.
SIMT_DEVICE inline void FenceSums(float (&s)[32][4]) {
#if INFINI_TRAIN_WARPGROUPS
  asm volatile("" : INFINI_TRAIN_ALL_SUMS::"memory");
#endif
}

#define INFINI_TRAIN_WARPGROUP_PRODUCT(type)                                                   \
  asm volatile(                                                                                \
      "{\n"                                                                                    \
      ".reg .pred add;\n"                                                                      \
      "setp.ne.b32 add, %130, 0;\n"                                                            \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type                             \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "               \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "       \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "       \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "       \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "       \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "       \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, " \
      "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, "   \
      "%125, %126, %127}, %128, %129, add, 1, 1, %131, %132;\n"                                \
      "}"                                                                                      \
      : INFINI_TRAIN_ALL_SUMS                                                                  \
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(kAAlongDepth ? 0 : 1),                 \
        "n"(kBAlongDepth ? 0 : 1)                                                              \
      : "memory")

/// Starts s [64, 256] = a [64, 16] @ b [16, 256], plus s where `add`. Of the sums, lane i of warp w
/// has, for each 8 columns, elements 2 (i % 4) and the next one of rows 16 w + i / 4, then 8 below.
template <typename T, bool kAAlongDepth, bool kBAlongDepth>
SIMT_DEVICE inline void StartProduct(float (&s)[32][4], std::uint64_t a, std::uint64_t b,
                                     bool add) {
#if INFINI_TRAIN_WARPGROUPS
  if constexpr (std::is_same_v<T, BFloat16>) {
    INFINI_TRAIN_WARPGROUP_PRODUCT("bf16");
  } else {
    static_assert(std::is_same_v<T, Float16>);
    INFINI_TRAIN_WARPGROUP_PRODUCT("f16");
  }
#endif
}

#undef INFINI_TRAIN_WARPGROUP_PRODUCT
#undef INFINI_TRAIN_ALL_SUMS
#undef INFINI_TRAIN_SIXTEEN_SUMS
#undef INFINI_TRAIN_FOUR_SUMS

}  // namespace infini_train::cuda
