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

/// Cosines and sines of position * frequency, each float32 [T, D/2]. Angles are formed in float64
/// whatever the model computes in: a bfloat16 cannot hold position 257. The table grows with the
/// positions that are asked for, since a configuration may allow many more than are ever used.
class INFINI_TRAIN_API RotaryTable {
 public:
  RotaryTable(const TransformerConfig& config, Device device);

  /// Holds the positions below `positions` (as far as the configuration allows them) from now on.
  /// Call it before a graph is captured that must not grow the table.
  void Reserve(std::int64_t positions);
  /// Rows [start, start + length) of both. Throws Error beyond max_position_embeddings.
  std::pair<Tensor, Tensor> Rows(std::int64_t start, std::int64_t length);
  /// The rows of `positions`, int64 [T], all of them below `limit`.
  std::pair<Tensor, Tensor> Rows(const Tensor& positions, std::int64_t limit);

 private:
  std::vector<double> frequencies_;
  std::int64_t max_positions_;
  Device device_;
  std::int64_t size_ = 0;  ///< positions held
  Tensor cos_;
  Tensor sin_;
  /// Smaller tables of before: captured graphs may still read them.
  std::vector<Tensor> outgrown_;
};

}  // namespace infini_train::nn
