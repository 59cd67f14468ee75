#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/tensor.h"
#include "infini_train/models/families/model_family.h"

/// Weights between files and parameters.
namespace infini_train::models {

/// The parameters of a model by their names.
std::unordered_map<std::string, Tensor> ParametersByName(const Model& model);

/// Copies a tensor of a file (a view of its mapping) over a parameter, or rows of one, of the same
/// shape, converting it on the way. An accelerator takes what needs converting piece by piece: no
/// copy of a whole tensor is made.
void CopyWeight(const Tensor& target, const Tensor& stored);

/// The tensors of a model by the names and in the layouts of its family's files.
NamedTensors WeightsForFile(const ModelFamily& family, const Model& model);

/// Where each weight of a folder goes.
class WeightPlan {
 public:
  /// Finds every weight before anything is written. Throws Error that lists all which are missing,
  /// unexpected, or of a wrong shape or type.
  WeightPlan(const ModelFamily& family, const Model& model,
             const checkpoint::SafetensorsFolder& files);

  /// Fills the parameters.
  void Run(const checkpoint::SafetensorsFolder& files) const;

 private:
  struct Step {
    Tensor target;
    std::string name;
    bool transposed;
  };
  std::vector<Step> steps_;
};

}  // namespace infini_train::models
