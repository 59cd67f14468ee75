#include "infini_train/nn/packed_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"

namespace infini_train::nn {

PackedSamples PackSamples(const std::vector<std::int64_t>& lengths, std::int64_t tokens,
                          Device device) {
  if (tokens < 0 || tokens > std::numeric_limits<std::int32_t>::max()) {
    throw Error(fmt::format("packed samples: expected 0 to 2^31 - 1 positions, got {}", tokens));
  }
  PackedSamples samples;
  std::vector<std::int32_t> ends = {0};
  std::vector<std::int64_t> positions(static_cast<std::size_t>(tokens), 0);
  std::int64_t end = 0;
  for (const std::int64_t length : lengths) {
    if (length < 0 || length > tokens - end) {
      throw Error(
          fmt::format("packed samples: expected a sample {} of 0 to {} tokens, which of {} are "
                      "left, got {}",
                      ends.size() - 1, tokens - end, tokens, length));
    }
    for (std::int64_t i = 0; i < length; ++i)
      positions[static_cast<std::size_t>(end + i)] = i;
    end += length;
    ends.push_back(static_cast<std::int32_t>(end));
    samples.max_length = std::max(samples.max_length, length);
  }
  const auto count = static_cast<std::int64_t>(ends.size());
  samples.cumulative_lengths = To(Tensor::FromVector(ends, {count}), device);
  samples.positions = To(Tensor::FromVector(positions, {tokens}), device);
  return samples;
}

}  // namespace infini_train::nn
