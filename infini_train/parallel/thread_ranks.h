#pragma once

#include <functional>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device.h"
#include "infini_train/parallel/ccl.h"
#include "infini_train/parallel/parallel_context.h"

namespace infini_train::parallel {

/// Runs `body` once for each device, as data-parallel ranks 0, 1, ... on threads of this process:
/// rank 0 on the calling one, each with its device current. All devices are of one kind. Returns
/// when all are done. When a rank throws, the calls of the others to their communicators throw as
/// well, and so does this: what the first threw. One device needs no collectives.
INFINI_TRAIN_API void RunThreadRanks(const std::vector<Device>& devices,
                                     const std::function<void(ParallelContext&)>& body);
/// The same over the given collectives.
INFINI_TRAIN_API void RunThreadRanks(Ccl& ccl, const std::vector<Device>& devices,
                                     const std::function<void(ParallelContext&)>& body);

}  // namespace infini_train::parallel
