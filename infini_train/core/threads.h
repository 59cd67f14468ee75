#pragma once

#include "infini_train/core/api.h"

namespace infini_train {

/// Number of threads that CPU kernels called from this thread use. Starts as OMP_NUM_THREADS, or
/// the number of processors. Throws Error unless 1 to 4096.
INFINI_TRAIN_API void SetNumThreads(int num_threads);
INFINI_TRAIN_API int GetNumThreads();

}  // namespace infini_train
