#pragma once

#include <cstdio>

#include "infini_train/core/api.h"
#include "infini_train/trainer/options.h"

namespace infini_train::trainer {

/// Trains as the options say, printing to `out`. Returns 0, or 128 + the signal that stopped it
/// after saving. Throws Error on bad input before anything is written.
INFINI_TRAIN_API int Train(const TrainOptions& options, std::FILE* out);

}  // namespace infini_train::trainer
