#pragma once

#include <cstdint>
#include <memory>

#include "infini_train/core/api.h"
#include "infini_train/nn/feed_forward.h"
#include "infini_train/nn/layers.h"
#include "infini_train/nn/transformer_config.h"

namespace infini_train::nn {

/// x [.., C] to logits [.., E] over the experts, in float32 (float64 for float64) also under
/// autocast and MatmulPrecision::kFp8.
class INFINI_TRAIN_API Router : public Module {
 public:
  Router(std::int64_t hidden_size, std::int64_t num_experts, TensorOptions options = {});

 protected:
  Tensor Forward(const Tensor& x, const ForwardContext& context) override;

 private:
  Tensor weight_;
};

/// Mixture of experts as Mixtral's (Jiang et al. 2024), x [.., C] to [.., C]: the router's softmax
/// over all experts, of which each token goes to the num_experts_per_tok most probable; the sum of
/// what these SwiGLU MLPs make of it, weighted by their probabilities, which are scaled to add up
/// to 1. Where two are equal the expert of lower index is first. Every token is computed by all of
/// its experts: there is no capacity that could drop one, and no padding.
///
/// Parameters: router.weight [E, C], experts.c_fc.weight [E, 2 F, C] with rows [gate | up] and
/// experts.c_proj.weight [E, C, F]. Their products are grouped, one for all experts, and never wait
/// for the device. MatmulPrecision::kFp8 does not reach them.
///
/// In training router_jitter_noise multiplies x, for router and experts alike, by numbers that are
/// uniform in [1 - noise, 1 + noise).
class INFINI_TRAIN_API MixtureOfExperts : public FeedForward {
 public:
  MixtureOfExperts(const TransformerConfig& config, TensorOptions options);

  const Tensor& input_weight() const { return c_fc_; }
  const Tensor& output_weight() const override { return c_proj_; }

 protected:
  /// Adds to the context's router statistics, where it has any.
  Tensor Forward(const Tensor& x, const ForwardContext& context) override;

 private:
  std::int64_t num_experts_;
  std::int64_t num_experts_per_tok_;
  double jitter_noise_;
  std::shared_ptr<Router> router_;
  Tensor c_fc_;
  Tensor c_proj_;
  std::shared_ptr<Dropout> dropout_;
};

}  // namespace infini_train::nn
