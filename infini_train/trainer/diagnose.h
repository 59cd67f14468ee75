#pragma once

#include <string>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"
#include "infini_train/models/model.h"

namespace infini_train::trainer {

/// Whether every element is finite. Synchronises.
INFINI_TRAIN_API bool AllFinite(const Tensor& tensor);

/// Runs the model on ids [B, T], in a context, once more and names where a value that is not finite
/// first appears: a parameter, else the output of a module, else the cross-entropy or the gradient
/// of a parameter. Empty if nowhere.
INFINI_TRAIN_API std::string FindNonFinite(const models::Model& model, const Tensor& ids,
                                           const Tensor& targets,
                                           const nn::ForwardContext& context = {});

}  // namespace infini_train::trainer
