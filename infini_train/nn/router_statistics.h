#pragma once

#include <span>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"
#include "infini_train/nn/module.h"

namespace infini_train::nn {

/// What the routers of a mixture of experts did with the tokens of a forward pass, layer by layer.
/// A pass whose ForwardContext points to one adds to it; nothing is read by the host. Tokens that
/// the context's token mask leaves out are not in it.
class INFINI_TRAIN_API RouterStatistics {
 public:
  /// One layer. Float32 unless the router computes in float64.
  struct Layer {
    Tensor probability_sum;  ///< [E], over the tokens; the one that has a gradient
    Tensor load;             ///< [E], choices that fell on each expert
    Tensor entropy_sum;      ///< [], over the tokens, of the probabilities' entropy in nats
  };

  const std::vector<Layer>& layers() const { return layers_; }
  void Add(Layer layer);

  /// All layers' tensors, one layer after another, and the way back: for functions between tensors.
  std::vector<Tensor> Tensors() const;
  void AddTensors(std::span<const Tensor> tensors);

  /// Begins a pass over ids [B, T]: notes how many of them count and gives the mask of these for
  /// the routers, float32 [B T]; undefined where all do. Throws Error for a mask of another size.
  Tensor CountTokens(const Tensor& ids, const ForwardContext& context);

  /// E * sum over experts of (share of the tokens' choices) * (mean probability), over the tokens
  /// of all layers together, as Transformers computes it for Mixtral (load_balancing_loss_func,
  /// after Fedus et al. 2021, equations 4 to 6): k when all experts are used alike, 0 when no token
  /// counts. A scalar whose gradient goes to the probabilities; computed once. Throws Error when
  /// there are no layers.
  Tensor LoadBalancingLoss();

  /// [L, E + 2] without a gradient: of each layer the load of each expert, the sum of entropies and
  /// the number of tokens. Adds up over passes. Throws Error when there are no layers.
  Tensor Summary() const;

 private:
  void CheckLayers() const;

  std::vector<Layer> layers_;
  Tensor num_tokens_;  ///< []
  Tensor load_balancing_loss_;
};

}  // namespace infini_train::nn
