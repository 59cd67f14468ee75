#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/trainer/metrics.h"

namespace infini_train::trainer {

/// What the routers of a mixture of experts did in a step, over all its micro-batches and ranks.
struct INFINI_TRAIN_API RouterReport {
  struct Layer {
    std::vector<double> load;  ///< share of the tokens' choices that fell on each expert
    double entropy = 0.0;      ///< of the probabilities, in nats, the mean over tokens

    /// The largest load over the mean one: 1 when all experts are used alike.
    double Imbalance() const;
  };

  /// The mean of the micro-batches' losses (nn/router_statistics.h), without the coefficient that
  /// it has in the loss; the number of experts per token when all are used alike.
  double load_balancing_loss = 0.0;
  std::vector<Layer> layers;

  double MeanEntropy() const;
  double LargestImbalance() const;
};

/// From a step's sums as AccumulateGradients gives them, for layers of `num_experts` experts.
INFINI_TRAIN_API RouterReport MakeRouterReport(std::span<const float> sums,
                                               std::int64_t num_experts);

/// Adds aux_loss, router_entropy and expert_imbalance (the largest of the layers), then the latter
/// two of each layer ("expert_imbalance/h.0").
INFINI_TRAIN_API void AppendMetrics(const RouterReport& report, Metrics& metrics);

/// A line for each layer: the experts' loads in percent, imbalance and entropy.
INFINI_TRAIN_API std::string FormatExpertLoad(const RouterReport& report);

}  // namespace infini_train::trainer
