#pragma once

#include <cstdint>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"

namespace infini_train::nn {

/// Several samples one after another in the T positions of a batch of one. Each is on its own: its
/// tokens attend to each other alone, and their positions count from its start.
struct PackedSamples {
  Tensor cumulative_lengths = {};  ///< int32 [N + 1], as ScaledDotProductAttention takes it
  Tensor positions = {};           ///< int64 [T], of tokens in their samples; 0 behind the last
  std::int64_t max_length = 0;     ///< of a sample

  bool defined() const { return cumulative_lengths.defined(); }
};

/// The numbers of PackedSamples, on the host.
struct PackedLayout {
  std::vector<std::int32_t> cumulative_lengths;
  std::vector<std::int64_t> positions;
  std::int64_t max_length = 0;
};

/// As PackSamples.
INFINI_TRAIN_API PackedLayout LayOutSamples(const std::vector<std::int64_t>& lengths,
                                            std::int64_t tokens);

/// Samples of these lengths, the first from position 0 of `tokens`; positions behind the last are
/// padding. An empty sample is nothing: so that a captured graph fits every batch, pass as many
/// lengths each time. Throws Error when a length is negative or they exceed `tokens`.
INFINI_TRAIN_API PackedSamples PackSamples(const std::vector<std::int64_t>& lengths,
                                           std::int64_t tokens, Device device);

}  // namespace infini_train::nn
