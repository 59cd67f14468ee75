#pragma once

#include <optional>
#include <span>

#include "infini_train/core/api.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"
#include "infini_train/models/model.h"
#include "infini_train/parallel/data_parallel.h"
#include "infini_train/trainer/setup.h"

namespace infini_train::trainer {

/// Adds the gradients of one optimizer step: of the mean loss over all targets of the micro-batches
/// together, however they are spread. Returns that mean, float32 [] on the model's device;
/// undefined, with no gradient, when no target counts. Does not wait for the device.
///
/// With `data_parallel`, the mean and the gradients are over the micro-batches of all its ranks.
/// Each rank has as many micro-batches, and knows how many targets the others' have.
///
/// Where the model is trained with a load-balancing loss, the mean over the micro-batches that have
/// targets is added, times its coefficient. A model with experts sets `router_sums`, if that is not
/// null, to [1 + L (E + 2)]: that mean without the coefficient, and nn::RouterStatistics' summaries
/// of the L layers added up.
///
/// `inverse_targets`, float32 [] on the device, is 1 / the number of targets of the step where that
/// number shall not be part of the work: captured, it fits steps with other numbers, and no
/// micro-batch is left out. Undefined: the batches' own counts are, which costs less.
INFINI_TRAIN_API Tensor AccumulateGradients(const models::Model& model,
                                            std::span<const DeviceBatch> batches,
                                            std::optional<DataType> autocast_dtype,
                                            parallel::DataParallel* data_parallel = nullptr,
                                            Tensor* router_sums = nullptr,
                                            const Tensor& inverse_targets = {});

}  // namespace infini_train::trainer
