#include "infini_train/nn/packed_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"

namespace infini_train::nn {

PackedLayout LayOutSamples(const std::vector<std::int64_t>& lengths, std::int64_t tokens) {
  if (tokens < 0 || tokens > std::numeric_limits<std::int32_t>::max()) {
    throw Error(fmt::format("packed samples: expected 0 to 2^31 - 1 positions, got {}", tokens));
  }
  PackedLayout layout;
  layout.cumulative_lengths = {0};
  layout.positions.assign(static_cast<std::size_t>(tokens), 0);
  std::int64_t end = 0;
  for (const std::int64_t length : lengths) {
    if (length < 0 || length > tokens - end) {
      throw Error(
          fmt::format("packed samples: expected a sample {} of 0 to {} tokens, which of {} are "
                      "left, got {}",
                      layout.cumulative_lengths.size() - 1, tokens - end, tokens, length));
    }
    for (std::int64_t i = 0; i < length; ++i)
      layout.positions[static_cast<std::size_t>(end + i)] = i;
    end += length;
    layout.cumulative_lengths.push_back(static_cast<std::int32_t>(end));
    layout.max_length = std::max(layout.max_length, length);
  }
  return layout;
}

PackedSamples PackSamples(const std::vector<std::int64_t>& lengths, std::int64_t tokens,
                          Device device) {
  const PackedLayout layout = LayOutSamples(lengths, tokens);
  const auto count = static_cast<std::int64_t>(layout.cumulative_lengths.size());
  return {To(Tensor::FromVector(layout.cumulative_lengths, {count}), device),
          To(Tensor::FromVector(layout.positions, {tokens}), device), layout.max_length};
}

}  // namespace infini_train::nn
