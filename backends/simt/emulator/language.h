#pragma once

/// The words of the dialect that the portable headers build upon.

#include <cstddef>
#include <cstdint>
#include <source_location>

#include "infini_train/ops/dispatch.h"

#define SIMT_KERNEL
#define SIMT_DEVICE
#define SIMT_HOST_DEVICE
/// Of kernels: lanes of a block at most, and blocks that a multiprocessor is to have room for.
#define SIMT_RESIDENT(lanes, blocks)
/// Before a loop of constant length over an array that is to stay in registers.
#define SIMT_UNROLL
#define SIMT_DEVICE_TYPE kPrivateUse1

namespace infini_train::simt {

/// Where a call stands in a kernel's source; default arguments carry it into faults.
using Place = std::source_location;

using NativeStream = StreamHandle;

/// The most lanes that execute together on any device.
inline constexpr int kMaxWarpSize = 64;

/// Small, so that tests reach them.
inline constexpr std::int64_t kMaxGridX = 65535;
inline constexpr std::int64_t kMaxGridYZ = 65535;

/// Static and dynamic shared memory of one block: what the smallest device has.
inline constexpr std::size_t kMaxSharedBytes = std::size_t{64} << 10;

}  // namespace infini_train::simt
