#include "infini_train/trainer/diagnose.h"

#include <fmt/format.h>

#include <cmath>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"

namespace infini_train::trainer {

bool AllFinite(const Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  const NoGrad no_grad;
  // The largest magnitude is NaN if any element is, and infinite if any element is.
  return std::isfinite(Max(Abs(tensor)).Item());
}

std::string FindNonFinite(const models::Model& model, const Tensor& ids, const Tensor& targets,
                          const nn::ForwardContext& context) {
  const NamedTensors parameters = model.module->NamedParameters();
  for (const auto& [name, parameter] : parameters) {
    if (!AllFinite(parameter)) return fmt::format("parameter {}", name);
  }
  std::string place;
  std::vector<std::pair<nn::Module*, int>> hooks;
  for (const auto& [name, module] : model.module->NamedModules()) {
    const int id = module->RegisterForwardHook(
        [&place, name = name](nn::Module&, const Tensor&, const Tensor& output) {
          if (place.empty() && IsFloatingPoint(output.dtype()) && !AllFinite(output)) {
            place = fmt::format("the output of {}", name.empty() ? "the model" : name);
          }
          return Tensor();
        });
    hooks.emplace_back(module, id);
  }
  model.module->ZeroGrad();
  const double scale = 1.0 / static_cast<double>(targets.numel());
  const Tensor loss = model.module->Loss(ids, targets, scale, context);
  for (const auto& [module, id] : hooks)
    module->RemoveHook(id);
  if (!place.empty()) return place;
  if (!AllFinite(loss)) return "the cross-entropy";
  Backward(loss);
  for (const auto& [name, parameter] : parameters) {
    if (parameter.grad().defined() && !AllFinite(parameter.grad())) {
      place = fmt::format("the gradient of {}", name);
      break;
    }
  }
  model.module->ZeroGrad();
  return place;
}

}  // namespace infini_train::trainer
