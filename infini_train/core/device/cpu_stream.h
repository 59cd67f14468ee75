#pragma once

#include <functional>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device_guard.h"

namespace infini_train {

/// Runs `task` in order of a stream of the CPU. It must not throw.
///
/// Kernels, copies and fills of the CPU are done when the call returns; what is enqueued here alone
/// runs beside the caller, on a thread of the stream's own. Events, copies and fills of the stream
/// keep their order with it. The default stream (null) and the calling thread's current stream,
/// where kernels run, have no other thread: the task is done when this returns.
INFINI_TRAIN_API void EnqueueOnCpu(StreamHandle stream, std::function<void()> task);

}  // namespace infini_train
