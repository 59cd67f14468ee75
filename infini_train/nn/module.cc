#include "infini_train/nn/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/checklist/tensor_checklist.h"
#include "infini_train/core/error.h"

namespace infini_train::nn {
namespace {

int NextHookId() {
  static std::atomic<int> next{0};
  return next++;
}

std::string Join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

}  // namespace

Module::~Module() = default;

Tensor Module::operator()(const Tensor& x, const ForwardContext& context) {
  if (forward_pre_hooks_.empty() && forward_hooks_.empty()) return Forward(x, context);
  Tensor input = x;
  // Copies: a hook may remove itself or others, which then still run this once.
  const auto pre_hooks = forward_pre_hooks_;
  for (const auto& [id, hook] : pre_hooks) {
    if (Tensor replaced = hook(*this, input); replaced.defined()) input = std::move(replaced);
  }
  Tensor output = Forward(input, context);
  const auto hooks = forward_hooks_;
  for (const auto& [id, hook] : hooks) {
    if (Tensor replaced = hook(*this, input, output); replaced.defined()) {
      output = std::move(replaced);
    }
  }
  return output;
}

void Module::Visit(
    const std::string& prefix,
    const std::function<void(const std::string& prefix, const Module&)>& visitor) const {
  visitor(prefix, *this);
  for (const auto& [name, child] : children_)
    child->Visit(Join(prefix, name), visitor);
}

NamedTensors Module::NamedParameters(bool with_ties) const {
  NamedTensors result;
  // Whoever may require a gradient has a state of its own for that.
  std::unordered_set<const AutogradMeta*> seen;
  Visit("", [&](const std::string& prefix, const Module& module) {
    for (const auto& [name, tensor] : module.parameters_) {
      const bool is_new = seen.insert(&tensor.EnsureAutogradMeta()).second;
      if (with_ties || is_new) result.emplace_back(Join(prefix, name), tensor);
    }
  });
  return result;
}

std::vector<Tensor> Module::Parameters() const {
  std::vector<Tensor> result;
  for (auto& [name, tensor] : NamedParameters())
    result.push_back(std::move(tensor));
  return result;
}

NamedTensors Module::NamedBuffers() const {
  NamedTensors result;
  Visit("", [&](const std::string& prefix, const Module& module) {
    for (const Buffer& buffer : module.buffers_) {
      result.emplace_back(Join(prefix, buffer.name), buffer.tensor);
    }
  });
  return result;
}

NamedTensors Module::StateDict() const {
  NamedTensors result = NamedParameters();
  Visit("", [&](const std::string& prefix, const Module& module) {
    for (const Buffer& buffer : module.buffers_) {
      if (buffer.persistent) result.emplace_back(Join(prefix, buffer.name), buffer.tensor);
    }
  });
  return result;
}

void Module::LoadStateDict(const NamedTensors& state) const {
  TensorChecklist checklist("state dict", state);
  const NamedTensors own = StateDict();
  for (const auto& [name, tensor] : own)
    checklist.Expect(name, tensor.shape());
  checklist.ThrowIfWrong("the model");
  const std::unordered_map<std::string, Tensor> given(state.begin(), state.end());
  NoGrad no_grad;
  for (const auto& [name, tensor] : own)
    CopyInPlace(tensor, given.at(name));
}

std::vector<std::pair<std::string, Module*>> Module::NamedModules() {
  std::vector<std::pair<std::string, Module*>> result;
  Visit("", [&](const std::string& prefix, const Module& module) {
    result.emplace_back(prefix, const_cast<Module*>(&module));
  });
  return result;
}

void Module::Train(bool training) {
  for (auto& [name, module] : NamedModules())
    module->training_ = training;
}

void Module::ZeroGrad() const {
  for (const auto& [name, parameter] : NamedParameters())
    parameter.set_grad({});
}

int Module::RegisterForwardPreHook(ForwardPreHook hook) {
  const int id = NextHookId();
  forward_pre_hooks_.emplace(id, std::move(hook));
  return id;
}

int Module::RegisterForwardHook(ForwardHook hook) {
  const int id = NextHookId();
  forward_hooks_.emplace(id, std::move(hook));
  return id;
}

void Module::RemoveHook(int id) {
  forward_pre_hooks_.erase(id);
  forward_hooks_.erase(id);
}

void Module::CheckNewName(const std::string& name) const {
  const auto is_name = [&](const auto& entry) { return entry.first == name; };
  if (std::any_of(parameters_.begin(), parameters_.end(), is_name) ||
      std::any_of(children_.begin(), children_.end(), is_name) ||
      std::any_of(buffers_.begin(), buffers_.end(),
                  [&](const Buffer& buffer) { return buffer.name == name; })) {
    throw Error(fmt::format("module: {} is registered twice", name));
  }
}

Tensor Module::RegisterParameter(std::string name, Tensor tensor) {
  CheckNewName(name);
  tensor.set_requires_grad();
  parameters_.emplace_back(std::move(name), tensor);
  return tensor;
}

Tensor Module::RegisterBuffer(std::string name, Tensor tensor, bool persistent) {
  CheckNewName(name);
  buffers_.push_back({std::move(name), tensor, persistent});
  return tensor;
}

void Module::AddChild(std::string name, std::shared_ptr<Module> module) {
  CheckNewName(name);
  children_.emplace_back(std::move(name), std::move(module));
}

}  // namespace infini_train::nn
