#pragma once

#include <optional>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"
#include "infini_train/data/data_loader.h"
#include "infini_train/models/model.h"

namespace infini_train::trainer {

/// Adds the gradients of one optimizer step: of the mean loss over all targets of the micro-batches
/// together, however they are spread. Returns that mean, float32 [] on the model's device;
/// undefined, with no gradient, when no target counts.
INFINI_TRAIN_API Tensor AccumulateGradients(const models::Model& model,
                                            const std::vector<TokenBatch>& batches,
                                            std::optional<DataType> autocast_dtype);

}  // namespace infini_train::trainer
