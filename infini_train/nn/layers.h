#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "infini_train/autograd/fp8.h"
#include "infini_train/core/api.h"
#include "infini_train/core/device/device.h"
#include "infini_train/core/dtype.h"
#include "infini_train/nn/lora.h"
#include "infini_train/nn/module.h"

/// Layers with parameters. Constructors allocate without initialising: whoever builds the model
/// initialises or loads it.
namespace infini_train::nn {

/// Where and in which type a module's parameters live.
struct TensorOptions {
  Device device = {};
  DataType dtype = DataType::kFloat32;
};

/// x [.., in_features] @ weight [out_features, in_features]ᵀ + bias [out_features], plus what its
/// adapters add, where it has any.
class INFINI_TRAIN_API Linear : public Module {
 public:
  Linear(std::int64_t in_features, std::int64_t out_features, bool bias,
         TensorOptions options = {});

  const Tensor& weight() const { return weight_; }
  /// Undefined without a bias.
  const Tensor& bias() const { return bias_; }

  /// From now on the layer computes in FP8 while MatmulPrecision is kFp8.
  void set_fp8_state(std::shared_ptr<Fp8LinearState> state) { fp8_state_ = std::move(state); }
  /// The state, where the layer now computes in FP8; else null.
  std::shared_ptr<Fp8LinearState> active_fp8_state() const;

  /// Gives the layer adapters, as its child "lora". Throws Error when it has some.
  void set_lora(std::shared_ptr<LoraAdapters> lora);
  /// Null where there are none.
  const std::shared_ptr<LoraAdapters>& lora() const { return lora_; }

  /// Whether weight() and bias() are all that there is to the layer, and nobody watches it: then a
  /// caller may compute it together with its neighbours.
  bool CanFuse() const { return !HasForwardHooks() && (!lora_ || lora_->merged()); }

  /// Whether ApplyToQuantized takes the place of a call: the layer computes in FP8, and can be
  /// computed together with its neighbours.
  bool TakesQuantized() const { return CanFuse() && active_fp8_state() != nullptr; }
  Tensor ApplyToQuantized(const Fp8Activation& x) const;

 protected:
  Tensor Forward(const Tensor& x, const ForwardContext& context) override;

 private:
  Tensor weight_;
  Tensor bias_;
  std::shared_ptr<Fp8LinearState> fp8_state_;
  std::shared_ptr<LoraAdapters> lora_;
};

/// Rows of weight [num_embeddings, embedding_dim] for ids [..].
class INFINI_TRAIN_API Embedding : public Module {
 public:
  Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, TensorOptions options = {});

  const Tensor& weight() const { return weight_; }

 protected:
  Tensor Forward(const Tensor& ids, const ForwardContext& context) override;

 private:
  Tensor weight_;
};

/// A normalisation over the last dimension.
class INFINI_TRAIN_API Norm : public Module {
 public:
  /// {sum, normalised sum} of sum = x + branch (x where branch is undefined); one pass over memory
  /// where no hooks watch.
  std::pair<Tensor, Tensor> AddThenNormalize(const Tensor& x, const Tensor& branch,
                                             const ForwardContext& context);
  /// The same where no hooks watch, with the normalised sum in FP8 alone, for `consumer`, which
  /// takes it so.
  virtual std::pair<Tensor, Fp8Activation> AddThenQuantize(const Tensor& x, const Tensor& branch,
                                                           const Linear& consumer) const = 0;

 protected:
  virtual std::pair<Tensor, Tensor> FusedAddThenNormalize(const Tensor& x,
                                                          const Tensor& branch) = 0;
};

/// LayerNorm over the last dimension, with weight and (optional) bias.
class INFINI_TRAIN_API LayerNorm : public Norm {
 public:
  LayerNorm(std::int64_t hidden_size, double eps, bool bias = true, TensorOptions options = {});
  std::pair<Tensor, Fp8Activation> AddThenQuantize(const Tensor& x, const Tensor& branch,
                                                   const Linear& consumer) const override;

 protected:
  Tensor Forward(const Tensor& x, const ForwardContext& context) override;
  std::pair<Tensor, Tensor> FusedAddThenNormalize(const Tensor& x, const Tensor& branch) override;

 private:
  Tensor weight_;
  Tensor bias_;
  double eps_;
};

/// RMSNorm over the last dimension, with weight.
class INFINI_TRAIN_API RmsNorm : public Norm {
 public:
  RmsNorm(std::int64_t hidden_size, double eps, TensorOptions options = {});
  std::pair<Tensor, Fp8Activation> AddThenQuantize(const Tensor& x, const Tensor& branch,
                                                   const Linear& consumer) const override;

  const Tensor& weight() const { return weight_; }
  double eps() const { return eps_; }

 protected:
  Tensor Forward(const Tensor& x, const ForwardContext& context) override;
  std::pair<Tensor, Tensor> FusedAddThenNormalize(const Tensor& x, const Tensor& branch) override;

 private:
  Tensor weight_;
  double eps_;
};

/// Zeroes elements with probability p in training mode.
class INFINI_TRAIN_API Dropout : public Module {
 public:
  /// Throws Error unless 0 <= p < 1.
  explicit Dropout(double p);

  void set_p(double p);

 protected:
  Tensor Forward(const Tensor& x, const ForwardContext& context) override;

 private:
  double p_;
};

}  // namespace infini_train::nn
