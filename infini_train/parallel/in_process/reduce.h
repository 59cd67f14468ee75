#pragma once

#include <cstddef>
#include <span>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/dtype.h"
#include "infini_train/parallel/ccl.h"

namespace infini_train::parallel {

/// Elements of one rank.
struct RankPart {
  const void* data = nullptr;
  Device device;
};

/// out[i] = the reduction of parts[0][i], parts[1][i], ... in this order, on the current stream of
/// `device`, where `out` is; it may be one of the parts. Parts of other devices are copied in
/// pieces. Half types are reduced in float32. Throws Error where the device lacks a kernel.
void ReduceParts(Device device, std::span<const RankPart> parts, void* out, std::size_t count,
                 DataType dtype, ReduceOp op);

}  // namespace infini_train::parallel
