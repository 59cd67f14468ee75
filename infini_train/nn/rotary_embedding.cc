#include "infini_train/nn/rotary_embedding.h"

#include <cmath>
#include <numbers>

#include "infini_train/autograd/functions.h"

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

RotaryTable::RotaryTable(const TransformerConfig& config, Device device) {
  const std::vector<double> frequencies = RotaryInverseFrequencies(config);
  const auto pairs = static_cast<std::int64_t>(frequencies.size());
  std::vector<float> cosines;
  std::vector<float> sines;
  cosines.reserve(static_cast<std::size_t>(config.max_position_embeddings * pairs));
  sines.reserve(cosines.capacity());
  for (std::int64_t position = 0; position < config.max_position_embeddings; ++position) {
    for (double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  const Dims shape = {config.max_position_embeddings, pairs};
  cos_ = To(Tensor::FromVector(cosines, shape), device);
  sin_ = To(Tensor::FromVector(sines, shape), device);
}

std::pair<Tensor, Tensor> RotaryTable::Rows(std::int64_t start, std::int64_t length) const {
  return {Slice(cos_, 0, start, start + length), Slice(sin_, 0, start, start + length)};
}

std::pair<Tensor, Tensor> RotaryTable::Rows(const Tensor& positions) const {
  return {IndexSelect(cos_, 0, positions), IndexSelect(sin_, 0, positions)};
}

}  // namespace infini_train::nn
