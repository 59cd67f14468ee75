#include "infini_train/nn/rotary_embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"

namespace infini_train::nn {

std::vector<double> RotaryInverseFrequencies(const TransformerConfig& config) {
  std::vector<double> frequencies;
  for (std::int64_t j = 0; j < config.head_dim / 2; ++j) {
    double frequency = std::pow(
        config.rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(config.head_dim));
    if (config.rope_scaling) {
      const RopeScaling& scaling = *config.rope_scaling;
      const double original = static_cast<double>(scaling.original_max_position_embeddings);
      const double wavelength = 2.0 * std::numbers::pi / frequency;
      const double smooth = (original / wavelength - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
      const double slow = frequency / scaling.factor;
      if (wavelength > original / scaling.low_freq_factor) {
        frequency = slow;
      } else if (wavelength >= original / scaling.high_freq_factor) {
        frequency = (1.0 - smooth) * slow + smooth * frequency;
      }
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

RotaryTable::RotaryTable(const TransformerConfig& config, Device device)
    : frequencies_(RotaryInverseFrequencies(config)),
      max_positions_(config.max_position_embeddings),
      device_(device) {}

void RotaryTable::Reserve(std::int64_t positions) {
  constexpr std::int64_t kLeast = 256;
  positions = std::min(positions, max_positions_);
  if (positions <= size_) return;
  // Twice as large each time: growing by a position a step costs little.
  const std::int64_t size = std::min(std::max({positions, 2 * size_, kLeast}), max_positions_);
  const Dims shape = {size, static_cast<std::int64_t>(frequencies_.size())};
  std::vector<float> cosines;
  std::vector<float> sines;
  cosines.reserve(static_cast<std::size_t>(Numel(shape)));
  sines.reserve(cosines.capacity());
  for (std::int64_t position = 0; position < size; ++position) {
    for (const double frequency : frequencies_) {
      const double angle = static_cast<double>(position) * frequency;
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  Tensor cos = To(Tensor::FromVector(cosines, shape), device_);
  Tensor sin = To(Tensor::FromVector(sines, shape), device_);
  if (size_ > 0) outgrown_.insert(outgrown_.end(), {cos_, sin_});
  cos_ = std::move(cos);
  sin_ = std::move(sin);
  size_ = size;
}

std::pair<Tensor, Tensor> RotaryTable::Rows(std::int64_t start, std::int64_t length) {
  if (start < 0 || length < 0 || start + length > max_positions_) {
    throw Error(fmt::format("expected positions below {} (max_position_embeddings), got {} to {}",
                            max_positions_, start, start + length));
  }
  Reserve(start + length);
  return {Slice(cos_, 0, start, start + length), Slice(sin_, 0, start, start + length)};
}

std::pair<Tensor, Tensor> RotaryTable::Rows(const Tensor& positions, std::int64_t limit) {
  Reserve(limit);
  return {IndexSelect(cos_, 0, positions), IndexSelect(sin_, 0, positions)};
}

}  // namespace infini_train::nn
