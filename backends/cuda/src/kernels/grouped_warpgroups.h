#pragma once

#include "kernels/grouped_tiles.h"

/// The products by warpgroups, which leave the operands in shared memory: for chips of compute
/// capability 9.0 alone.
namespace infini_train::cuda::grouped {

// Buffers: one that is multiplied, one that the other warpgroup may still multiply, two that are
// copied to. The pattern of their chunks repeats with addresses that are multiples of so many
// bytes.
inline constexpr int kWarpgroupStages = 4;
inline constexpr int kBufferAlignment = 1024;
inline constexpr int kWarpgroupSharedBytes = kWarpgroupStages * kBufferBytes + kBufferAlignment;

template <typename T>
using Kernel = void (*)(Problem<T>);

template <typename T>
Kernel<T> WarpgroupsKernel(bool a_along_depth, bool b_along_depth);

}  // namespace infini_train::cuda::grouped
