#pragma once

#include "infini_train/core/api.h"
#include "infini_train/parallel/ccl.h"

namespace infini_train::parallel {

/// Collectives of ranks that are threads of this process, each with a device of one kind or all on
/// one device. They need of a kind of device its runtime and kernels of Copy, Add, Mul, DivScalar,
/// Minimum and Maximum (the CPU does not stand in for them), and are what GetCcl gives where no
/// provider has its own.
///
/// Each element is reduced by one rank, in order of ranks: the same calls give the same bits in
/// every run and on every rank. Half types are added in float32. A call waits in the calling thread
/// until all ranks have made it, and then enqueues copies between devices and kernels on the
/// stream; on the CPU, a stream that is not the thread's current one waits and works on its own
/// thread (core/device/cpu_stream.h). Nothing can be captured into graphs.
///
/// A rank that throws in a call, or that calls Abort, makes the calls of all others throw its
/// message. A rank that does not come within INFINI_TRAIN_CCL_TIMEOUT seconds (default 600) is
/// named in an Error of the others; so are calls that do not match.
INFINI_TRAIN_API Ccl& InProcessCcl();

}  // namespace infini_train::parallel
