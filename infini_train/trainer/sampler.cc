#include "infini_train/trainer/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "infini_train/core/philox.h"
#include "infini_train/nn/key_value_cache.h"

namespace infini_train::trainer {
namespace {

/// A uniform number in [0, 1) with 53 bits.
double NextUniform(Generator& generator) {
  const Generator::State state = generator.Next();
  const auto words = Philox4x32(state.seed, state.offset, 0);
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

/// Runs tokens through the model and gives the logits of the last position.
std::vector<float> LastLogits(const models::Model& model, nn::KeyValueCache& cache,
                              std::span<const std::int64_t> tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  const Tensor ids =
      To(Tensor::FromVector(std::vector<std::int64_t>(tokens.begin(), tokens.end()), {1, count}),
         model.module->head_weight().device());
  const Tensor hidden = model.module->HiddenStates(ids, {.cache = &cache, .position_offset = 0});
  const Tensor last = Slice(hidden, 1, count - 1);
  return To(Linear(last, model.module->head_weight()), DataType::kFloat32).ToVector<float>();
}

}  // namespace

void CheckSamplingOptions(const SamplingOptions& options) {
  if (!(options.temperature >= 0.0) || !std::isfinite(options.temperature)) {
    throw Error(fmt::format("temperature: expected 0 or more, got {}", options.temperature));
  }
  if (options.top_k < 0)
    throw Error(fmt::format("top_k: expected 0 or more, got {}", options.top_k));
  if (!(options.top_p > 0.0 && options.top_p <= 1.0)) {
    throw Error(fmt::format("top_p: expected 0 < top_p <= 1, got {}", options.top_p));
  }
}

std::int64_t SampleToken(std::span<const float> logits, const SamplingOptions& options,
                         double uniform) {
  if (logits.empty()) throw Error("expected logits to choose a token from, got none");
  const auto most_likely = std::max_element(logits.begin(), logits.end());
  // A NaN hides from comparisons, the largest one included.
  if (!std::isfinite(*most_likely) ||
      std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); })) {
    throw Error("expected finite logits to choose a token from; the model gives NaN or infinity");
  }
  if (options.temperature == 0.0) return most_likely - logits.begin();
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto by_logit = [&](std::int64_t a, std::int64_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + options.top_k - 1, order.end(), by_logit);
    order.resize(static_cast<std::size_t>(options.top_k));
  }
  std::sort(order.begin(), order.end(), by_logit);
  std::vector<double> weights(order.size());
  double total = 0.0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    weights[i] =
        std::exp((static_cast<double>(logits[order[i]]) - *most_likely) / options.temperature);
    total += weights[i];
  }
  if (options.top_p < 1.0) {
    double kept = 0.0;
    std::size_t count = 0;
    while (count < weights.size() && kept < options.top_p * total)
      kept += weights[count++];
    weights.resize(count);
    total = kept;
  }
  double threshold = uniform * total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    threshold -= weights[i];
    if (threshold < 0.0) return order[i];
  }
  return order[weights.size() - 1];
}

void Generate(const models::Model& model, const std::vector<std::int64_t>& prompt,
              std::int64_t start_token, std::int64_t max_new_tokens,
              const std::vector<std::int64_t>& stop_tokens, const SamplingOptions& options,
              Generator& generator, const std::function<bool(std::int64_t)>& on_token) {
  CheckSamplingOptions(options);
  std::vector<std::int64_t> tokens = prompt;
  if (tokens.empty()) {
    if (start_token < 0) {
      throw Error("expected a prompt: the model names no token that starts a text");
    }
    tokens.push_back(start_token);
  }
  const NoGrad no_grad;
  const nn::TransformerConfig& config = model.config.transformer;
  const std::int64_t positions = config.max_position_embeddings;
  const auto prompt_length = static_cast<std::int64_t>(tokens.size());
  const std::int64_t capacity =
      prompt_length +
      std::min(max_new_tokens, std::max<std::int64_t>(positions - prompt_length, 0));
  nn::KeyValueCache cache(config.num_hidden_layers, std::min(capacity, positions));
  std::size_t done = 0;
  for (std::int64_t i = 0; i < max_new_tokens; ++i) {
    if (static_cast<std::int64_t>(tokens.size()) > positions) {
      const std::int64_t keep = std::max<std::int64_t>(positions / 2, 1);
      tokens.erase(tokens.begin(), tokens.end() - keep);
      cache.Truncate(0);
      done = 0;
    }
    const std::vector<float> logits =
        LastLogits(model, cache, std::span<const std::int64_t>(tokens).subspan(done));
    done = tokens.size();
    const std::int64_t token = SampleToken(logits, options, NextUniform(generator));
    tokens.push_back(token);
    const bool stop = std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end();
    if (!on_token(token) || stop) return;
  }
}

}  // namespace infini_train::trainer
