#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device.h"
#include "infini_train/core/tensor.h"
#include "infini_train/nn/transformer_config.h"

namespace infini_train::nn {

/// Inverse frequencies theta^(-2j/D), j = 0 … D/2 - 1, with the scaling of the configuration.
INFINI_TRAIN_API std::vector<double> RotaryInverseFrequencies(const TransformerConfig& config);

/// Cosines and sines of position * frequency, each float32 [max_position_embeddings, D/2]. Angles
/// are formed in float64 whatever the model computes in: a bfloat16 cannot hold position 257.
class INFINI_TRAIN_API RotaryTable {
 public:
  RotaryTable(const TransformerConfig& config, Device device);

  /// Rows [start, start + length) of both.
  std::pair<Tensor, Tensor> Rows(std::int64_t start, std::int64_t length) const;
  /// The rows of `positions`, int64 [T].
  std::pair<Tensor, Tensor> Rows(const Tensor& positions) const;

 private:
  Tensor cos_;
  Tensor sin_;
};

}  // namespace infini_train::nn
