#pragma once

#include <string>

#include "infini_train/core/tensor.h"
#include "infini_train/models/model.h"

namespace infini_train::trainer {

/// Whether every element is finite. Synchronises.
bool AllFinite(const Tensor& tensor);

/// Runs the model on ids [B, T] once more and says where a value that is not finite first appears:
/// in a parameter, else in the output of which module, else in the loss or the gradient of which
/// parameter.
std::string FindNonFinite(const models::Model& model, const Tensor& ids, const Tensor& targets);

}  // namespace infini_train::trainer
