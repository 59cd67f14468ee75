#include "infini_train/kernels/cpu/attention/geometry.h"

#include <fmt/format.h>

#include "infini_train/core/error.h"

namespace infini_train::cpu {

std::vector<KeyRange> SamplesOf(const Tensor& cumulative_lengths, std::int64_t positions) {
  if (!cumulative_lengths.defined()) return {};
  const auto* ends = cumulative_lengths.data<std::int32_t>();
  const std::int64_t count = cumulative_lengths.numel();
  if (count == 0 || ends[0] != 0) {
    throw Error(fmt::format("attention: expected cumulative lengths from 0 on, got {}",
                            count == 0 ? "none" : fmt::format("{} as the first", ends[0])));
  }
  std::vector<KeyRange> samples;
  samples.reserve(static_cast<std::size_t>(positions));
  for (std::int64_t i = 1; i < count; ++i) {
    if (ends[i] < ends[i - 1] || ends[i] > positions) {
      throw Error(
          fmt::format("attention: expected cumulative lengths that do not decrease, up to the {} "
                      "positions, got {} after {} at {}",
                      positions, ends[i], ends[i - 1], i));
    }
    samples.resize(static_cast<std::size_t>(ends[i]), KeyRange{ends[i - 1], ends[i]});
  }
  // Behind the last sample nothing is seen.
  const std::int64_t end = ends[count - 1];
  samples.resize(static_cast<std::size_t>(positions), KeyRange{end, end});
  return samples;
}

std::vector<KeyRange> AttentionGeometry::QuerySegments() const {
  if (samples.empty()) return {{0, queries}};
  std::vector<KeyRange> segments;
  for (std::int64_t t = 0; t < queries; t = segments.back().end) {
    // Positions behind the last sample see nothing.
    segments.push_back({t, samples[t].empty() ? queries : samples[t].end});
  }
  return segments;
}

}  // namespace infini_train::cpu
