#include "infini_train/autograd/parameter_casts.h"

#include <optional>
#include <vector>

#include "infini_train/autograd/grad_mode.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train {
namespace {

thread_local const ParameterCasts* current = nullptr;

}  // namespace

ParameterCasts::ParameterCasts(TensorList parameters) : previous_(current) {
  const std::optional<DataType> dtype = autocast::ComputeDataType();
  std::vector<Tensor> copies, sources;
  for (const Tensor& parameter : parameters) {
    if (!dtype || parameter.dtype() != DataType::kFloat32 || !parameter.IsContiguous()) continue;
    const auto [entry, is_new] = entries_.try_emplace(parameter.raw_data());
    if (!is_new) continue;
    entry->second = {Tensor::Empty(parameter.shape(), *dtype, parameter.device()),
                     parameter.version()};
    copies.push_back(entry->second.copy);
    sources.push_back(parameter);
  }
  Call<op::CopyAll>(MutableTensorList(copies), TensorList(sources));
  current = this;
}

ParameterCasts::~ParameterCasts() {
  current = previous_;
}

Tensor ParameterCasts::Find(const Tensor& x, DataType dtype) {
  if (current == nullptr || x.dtype() != DataType::kFloat32) return {};
  const auto found = current->entries_.find(x.raw_data());
  if (found == current->entries_.end()) return {};
  const auto& [copy, version] = found->second;
  const bool is_same = copy.dtype() == dtype && copy.shape() == x.shape() && x.IsContiguous() &&
                       version == x.version();
  return is_same ? copy.Detach() : Tensor();
}

}  // namespace infini_train
