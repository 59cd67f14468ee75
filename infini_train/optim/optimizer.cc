#include "infini_train/optim/optimizer.h"

#include <fmt/format.h>

#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/checklist/tensor_checklist.h"
#include "infini_train/core/error.h"
#include "infini_train/core/split_float.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::optim {
namespace {

DataType StateDataType(const Tensor& parameter) {
  return parameter.dtype() == DataType::kFloat64 ? DataType::kFloat64 : DataType::kFloat32;
}

/// The master of a parameter, equal to it; undefined where it needs none.
Tensor MakeMaster(const Tensor& parameter) {
  if (parameter.dtype() == DataType::kFloat16) return To(parameter, DataType::kFloat32);
  if (parameter.dtype() != DataType::kBFloat16) return {};
  return Zeros(parameter.shape(), DataType::kUInt16, parameter.device());
}

/// Whether a tensor of the state is half of a master, whose other half is the parameter.
bool IsHalfOfMaster(const Tensor& tensor) {
  return tensor.dtype() == DataType::kUInt16;
}

Tensor OnHost(const Tensor& tensor) {
  return Contiguous(To(tensor, Device()));
}

/// A master of which `low` is a half, float32 on the host.
Tensor JoinMaster(const Tensor& parameter, const Tensor& low) {
  const Tensor high_halves = OnHost(parameter), low_halves = OnHost(low);
  const auto* high = high_halves.data<BFloat16>();
  const auto* lows = low_halves.data<std::uint16_t>();
  Tensor master = Tensor::Empty(parameter.shape(), DataType::kFloat32);
  auto* values = master.data<float>();
  for (std::int64_t i = 0; i < master.numel(); ++i)
    values[i] = SplitFloat(high[i], lows[i]).Join();
  return master;
}

/// The other way round.
void SplitMaster(const Tensor& parameter, const Tensor& low, const Tensor& master) {
  const Tensor whole = OnHost(master);
  const Tensor high_halves = Tensor::Empty(parameter.shape(), DataType::kBFloat16);
  const Tensor low_halves = Tensor::Empty(parameter.shape(), DataType::kUInt16);
  const auto* values = whole.data<float>();
  auto* high = high_halves.data<BFloat16>();
  auto* lows = low_halves.data<std::uint16_t>();
  for (std::int64_t i = 0; i < whole.numel(); ++i) {
    const SplitFloat split(values[i]);
    high[i] = split.high;
    lows[i] = split.low;
  }
  CopyInPlace(parameter, high_halves);
  CopyInPlace(low, low_halves);
}

std::vector<Tensor> GradientsOf(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> grads;
  for (const Tensor& parameter : parameters) {
    if (parameter.grad().defined()) grads.push_back(parameter.grad());
  }
  return grads;
}

}  // namespace

std::vector<ParameterGroup> DecayMatricesOnly(const NamedTensors& parameters, double weight_decay) {
  ParameterGroup matrices{{}, weight_decay};
  ParameterGroup vectors{{}, 0.0};
  for (const auto& entry : parameters) {
    (entry.second.rank() >= 2 ? matrices : vectors).parameters.push_back(entry);
  }
  return {matrices, vectors};
}

Optimizer::Optimizer(std::vector<ParameterGroup> groups, std::vector<std::string> state_kinds)
    : state_kinds_(std::move(state_kinds)) {
  std::unordered_set<std::string> names;
  NoGrad no_grad;
  for (ParameterGroup& settings : groups) {
    Group group;
    group.states.resize(state_kinds_.size());
    bool any_master = false;
    for (const auto& [name, parameter] : settings.parameters) {
      if (!names.insert(name).second) {
        throw Error(fmt::format("optimizer: parameter {} is listed twice", name));
      }
      for (auto& list : group.states) {
        list.push_back(Zeros(parameter.shape(), StateDataType(parameter), parameter.device()));
      }
      group.masters.push_back(MakeMaster(parameter));
      any_master |= group.masters.back().defined();
    }
    if (!any_master) group.masters.clear();
    group.settings = std::move(settings);
    groups_.push_back(std::move(group));
  }
}

Optimizer::~Optimizer() = default;

void Optimizer::Step(double learning_rate, const Tensor& gradient_factor) {
  PrepareStep(learning_rate);
  ApplyStep(gradient_factor);
}

void Optimizer::PrepareStep(double learning_rate) {
  const NoGrad no_grad;
  ++step_;
  const std::vector<double> values = Scalars(learning_rate);
  if (!scalars_.defined()) {
    const std::vector<Tensor> parameters = Parameters();
    const Device device = parameters.empty() ? Device() : parameters.front().device();
    scalars_ = Ones({static_cast<std::int64_t>(values.size()) + 1}, DataType::kFloat64, device);
  }
  // As arguments of kernels, numbers reach the device without a copy that the host would wait for.
  for (std::size_t i = 0; i < values.size(); ++i)
    FillInPlace(Select(scalars_, 0, static_cast<std::int64_t>(i)), values[i]);
}

void Optimizer::ApplyStep(const Tensor& gradient_factor) {
  const NoGrad no_grad;
  const Tensor factor = Select(scalars_, 0, -1);
  if (gradient_factor.defined()) {
    CopyInPlace(factor, gradient_factor);
  } else {
    FillInPlace(factor, 1);
  }
  for (const Group& group : groups_) {
    Batch batch;
    batch.states.resize(state_kinds_.size());
    for (std::size_t i = 0; i < group.settings.parameters.size(); ++i) {
      const Tensor& parameter = group.settings.parameters[i].second;
      if (!parameter.grad().defined()) continue;
      batch.params.push_back(parameter);
      batch.grads.push_back(parameter.grad());
      for (std::size_t kind = 0; kind < state_kinds_.size(); ++kind) {
        batch.states[kind].push_back(group.states[kind][i]);
      }
      if (!group.masters.empty()) batch.masters.push_back(group.masters[i]);
    }
    if (!batch.params.empty()) Update(batch, group.settings.weight_decay, scalars_);
  }
}

void Optimizer::DiscardStep() {
  --step_;
}

void Optimizer::ZeroGrad() const {
  for (const Tensor& parameter : Parameters())
    parameter.set_grad({});
}

std::vector<Tensor> Optimizer::Parameters() const {
  std::vector<Tensor> result;
  for (const Group& group : groups_) {
    for (const auto& [name, parameter] : group.settings.parameters)
      result.push_back(parameter);
  }
  return result;
}

template <typename Visitor>
void Optimizer::VisitState(Visitor visitor) const {
  for (const Group& group : groups_) {
    for (std::size_t i = 0; i < group.settings.parameters.size(); ++i) {
      const auto& [name, parameter] = group.settings.parameters[i];
      for (std::size_t kind = 0; kind < state_kinds_.size(); ++kind) {
        visitor(state_kinds_[kind] + "." + name, group.states[kind][i], parameter);
      }
      if (!group.masters.empty() && group.masters[i].defined()) {
        visitor("master." + name, group.masters[i], parameter);
      }
    }
  }
}

NamedTensors Optimizer::StateDict() const {
  NamedTensors result;
  VisitState([&](const std::string& name, const Tensor& tensor, const Tensor& parameter) {
    result.emplace_back(name, IsHalfOfMaster(tensor) ? JoinMaster(parameter, tensor) : tensor);
  });
  return result;
}

void Optimizer::LoadStateDict(const NamedTensors& state, std::int64_t step) {
  if (step < 0) {
    throw Error(fmt::format("optimizer state: expected a step of 0 or more, found {}", step));
  }
  TensorChecklist checklist("optimizer state", state);
  VisitState([&](const std::string& name, const Tensor& tensor, const Tensor&) {
    checklist.ExpectType(name, tensor.shape(),
                         IsHalfOfMaster(tensor) ? DataType::kFloat32 : tensor.dtype());
  });
  checklist.ThrowIfWrong("the parameters");
  NoGrad no_grad;
  const std::unordered_map<std::string, Tensor> values(state.begin(), state.end());
  VisitState([&](const std::string& name, const Tensor& tensor, const Tensor& parameter) {
    if (IsHalfOfMaster(tensor)) {
      SplitMaster(parameter, tensor, values.at(name));
    } else {
      CopyInPlace(tensor, values.at(name));
    }
  });
  step_ = step;
}

AdamW::AdamW(std::vector<ParameterGroup> groups, Options options)
    : Optimizer(std::move(groups), {"exp_avg", "exp_avg_sq"}), options_(options) {}

std::vector<double> AdamW::Scalars(double learning_rate) const {
  const auto t = static_cast<double>(step());
  return {learning_rate, 1.0 - std::pow(options_.beta1, t), 1.0 - std::pow(options_.beta2, t)};
}

void AdamW::Update(Batch& batch, double weight_decay, const Tensor& scalars) {
  const AdamWParams hyper{options_.beta1, options_.beta2, options_.eps, weight_decay};
  Call<op::AdamW>(batch.params, batch.grads, batch.states[0], batch.states[1], batch.masters,
                  scalars, hyper);
}

Sgd::Sgd(std::vector<ParameterGroup> groups, Options options)
    : Optimizer(std::move(groups), options.momentum == 0.0
                                       ? std::vector<std::string>{}
                                       : std::vector<std::string>{"momentum_buffer"}),
      options_(options) {
  if (options.nesterov && (options.momentum <= 0.0 || options.dampening != 0.0)) {
    throw Error(
        fmt::format("sgd: expected a positive momentum and no dampening with nesterov, got {} and "
                    "{}",
                    options.momentum, options.dampening));
  }
}

std::vector<double> Sgd::Scalars(double learning_rate) const {
  return {learning_rate};
}

void Sgd::Update(Batch& batch, double weight_decay, const Tensor& scalars) {
  const SgdParams hyper{options_.momentum, options_.dampening, weight_decay, options_.nesterov,
                        step() == 1};
  std::vector<Tensor> no_buffers;
  Call<op::Sgd>(batch.params, batch.grads, batch.states.empty() ? no_buffers : batch.states[0],
                batch.masters, scalars, hyper);
}

GradientNorm ComputeGradientNorm(const std::vector<Tensor>& parameters, double max_norm) {
  NoGrad no_grad;
  const std::vector<Tensor> grads = GradientsOf(parameters);
  const Device device = parameters.empty() ? Device() : parameters.front().device();
  GradientNorm result{Tensor::Empty({}, DataType::kFloat32, device), {}};
  Call<op::GlobalNorm>(result.norm, grads);
  // 0, or NaN where the norm is infinite or NaN: the largest norm over infinity would be 0.
  const Tensor guard = result.norm * Scalar(0);
  result.factor =
      max_norm > 0.0
          ? Clamp(Div(Scalar(max_norm), Add(result.norm, Scalar(1e-6))), 0.0, 1.0) + guard
          : guard + Scalar(1);
  return result;
}

Tensor ClipGradNorm(const std::vector<Tensor>& parameters, double max_norm) {
  const GradientNorm result = ComputeGradientNorm(parameters, max_norm);
  std::vector<Tensor> grads = GradientsOf(parameters);
  Call<op::ScaleAll>(grads, result.factor);
  return result.norm;
}

}  // namespace infini_train::optim
