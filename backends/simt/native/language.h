#pragma once

/// The words of the dialect in device languages that have CUDA's keywords. Part of the
/// simt_platform.h of such a provider, in this order:
///
///     #include <the vendor's runtime>
///     #define SIMT_DEVICE_TYPE ...
///     #include "backends/simt/native/language.h"
///     namespace infini_train::simt { using NativeStream = ...; }
///     #include "backends/simt/context.h", geometry.h, math.h, vector.h
///     namespace infini_train::simt::detail { LaneMask; kWarpSize; DynamicSharedBytes() }
///     MatrixProducts, where there are instructions for them
///     AtomicAdd(), AtomicMax() and AtomicCas() for global memory
///     #include "backends/simt/native/lanes.h", launch.h and memory.h there
///     BringNear(); kCopiesAreAsync, CopyAsync(), CommitCopies() and WaitForCopies()
///     WaitForEarlier() and LetLaterBegin(); MaxDynamicSharedBytes(); Launch()

#include <cstddef>
#include <cstdint>

#define SIMT_KERNEL __global__
#define SIMT_DEVICE __device__
#define SIMT_HOST_DEVICE __host__ __device__
#define SIMT_UNROLL _Pragma("unroll")

namespace infini_train::simt {

/// Places are for the emulator's messages.
struct Place {
  SIMT_HOST_DEVICE static constexpr Place current() { return {}; }
};

inline constexpr int kMaxWarpSize = 64;
inline constexpr std::int64_t kMaxGridX = 2147483647;
inline constexpr std::int64_t kMaxGridYZ = 65535;
inline constexpr std::size_t kMaxSharedBytes = std::size_t{64} << 10;

}  // namespace infini_train::simt
