#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/params.h"

namespace infini_train::optim {

/// Parameters that share hyperparameters.
struct ParameterGroup {
  NamedTensors parameters;
  double weight_decay = 0.0;
};

/// Weight decay on matrices, none on vectors (biases and norms), as GPT-2 training does it.
INFINI_TRAIN_API std::vector<ParameterGroup> DecayMatricesOnly(const NamedTensors& parameters,
                                                               double weight_decay);

/// Updates parameters from their gradients, all of a group in one pass on the device and without
/// host synchronisation. Parameters of a type narrower than float32 have a float32 master copy that
/// is updated and rounded; of bfloat16, whose bits are half of it, the other half is kept alone.
/// Parameters without a gradient are left alone; the step count, which AdamW's bias correction
/// depends on, is one for all.
class INFINI_TRAIN_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update with `learning_rate`. `gradient_factor` (float32 [], may be undefined for 1)
  /// multiplies every gradient: the second half of clipping. Where it is not finite, nothing
  /// changes but the count.
  void Step(double learning_rate, const Tensor& gradient_factor = {});

  // Step in two parts, for a device that replays captured work (core/device/graph.h).
  /// What differs from step to step: counts it, and puts the learning rate and the bias corrections
  /// where ApplyStep finds them, in stream order.
  void PrepareStep(double learning_rate);
  /// The update itself, work of the device alone: captured once, it can be replayed after any other
  /// PrepareStep. Not in the first step of a run, which starts the momentum of SGD.
  void ApplyStep(const Tensor& gradient_factor = {});
  /// Takes the last step out of the count: its gradient factor was not finite.
  void DiscardStep();

  /// Drops all gradients.
  void ZeroGrad() const;

  /// Number of updates made. Kept as an integer, also in checkpoints.
  std::int64_t step() const { return step_; }
  /// "adamw" or "sgd".
  virtual std::string name() const = 0;

  /// Every parameter of every group.
  std::vector<Tensor> Parameters() const;
  /// Moments and master copies as "<kind>.<parameter name>", in a fixed order. The masters of
  /// parameters in bfloat16 are put together on the host.
  NamedTensors StateDict() const;
  /// Restores StateDict and step. Throws Error listing every tensor that is missing, unexpected or
  /// has another shape or type, before anything is written.
  void LoadStateDict(const NamedTensors& state, std::int64_t step);

 protected:
  struct Group {
    ParameterGroup settings;
    /// One list per kind of state, parallel to the parameters.
    std::vector<std::vector<Tensor>> states;
    /// As the ops take them: float32, for bfloat16 what it lacks (uint16), undefined for parameters
    /// that need none. Empty when no parameter of the group does.
    std::vector<Tensor> masters;
  };
  /// The parameters of a group that have gradients, with what belongs to them.
  struct Batch {
    std::vector<Tensor> params;
    std::vector<Tensor> grads;
    std::vector<std::vector<Tensor>> states;
    std::vector<Tensor> masters;
  };

  /// `state_kinds` names the tensors that each parameter has ("exp_avg"). Throws Error for a
  /// parameter that is listed twice.
  Optimizer(std::vector<ParameterGroup> groups, std::vector<std::string> state_kinds);

  /// The numbers that all updates of the present step share, besides the gradient factor.
  virtual std::vector<double> Scalars(double learning_rate) const = 0;
  /// `scalars` (float64, on the device): Scalars and then the gradient factor.
  virtual void Update(Batch& batch, double weight_decay, const Tensor& scalars) = 0;

 private:
  /// Calls `visitor(name, tensor, parameter)` for every tensor of the state.
  template <typename Visitor>
  void VisitState(Visitor visitor) const;

  std::vector<Group> groups_;
  std::vector<std::string> state_kinds_;
  Tensor scalars_;  ///< float64, of the first step on
  std::int64_t step_ = 0;
};

/// AdamW with decoupled weight decay (Loshchilov and Hutter 2019).
class INFINI_TRAIN_API AdamW : public Optimizer {
 public:
  struct Options {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
  };

  AdamW(std::vector<ParameterGroup> groups, Options options);
  explicit AdamW(std::vector<ParameterGroup> groups) : AdamW(std::move(groups), Options{}) {}

  std::string name() const override { return "adamw"; }

 protected:
  std::vector<double> Scalars(double learning_rate) const override;
  void Update(Batch& batch, double weight_decay, const Tensor& scalars) override;

 private:
  Options options_;
};

/// SGD with momentum, as PyTorch defines it. The momentum of a parameter without a gradient in the
/// first step starts from 0.
class INFINI_TRAIN_API Sgd : public Optimizer {
 public:
  struct Options {
    double momentum = 0.0;
    double dampening = 0.0;
    bool nesterov = false;
  };

  /// Throws Error for nesterov without momentum or with dampening.
  Sgd(std::vector<ParameterGroup> groups, Options options);
  explicit Sgd(std::vector<ParameterGroup> groups) : Sgd(std::move(groups), Options{}) {}

  std::string name() const override { return "sgd"; }

 protected:
  std::vector<double> Scalars(double learning_rate) const override;
  void Update(Batch& batch, double weight_decay, const Tensor& scalars) override;

 private:
  Options options_;
};

/// Euclidean norm over all gradients, and the factor min(1, max_norm / (norm + 1e-6)) that brings
/// it down to max_norm (1 when max_norm is 0: no clipping). Both float32 [] on the device. The
/// factor of a norm that is not finite is NaN.
struct GradientNorm {
  Tensor norm;
  Tensor factor;
};
INFINI_TRAIN_API GradientNorm ComputeGradientNorm(const std::vector<Tensor>& parameters,
                                                  double max_norm);
/// Scales all gradients in place by the factor of ComputeGradientNorm; returns the norm before.
INFINI_TRAIN_API Tensor ClipGradNorm(const std::vector<Tensor>& parameters, double max_norm);

}  // namespace infini_train::optim
