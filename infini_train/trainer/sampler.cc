#include "infini_train/trainer/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "infini_train/core/philox.h"
#include "infini_train/nn/key_value_cache.h"
#include "infini_train/nn/token_graph.h"

namespace infini_train::trainer {
namespace {

/// A uniform number in [0, 1) with 53 bits.
double NextUniform(Generator& generator) {
  const Generator::State state = generator.Next();
  const auto words = Philox4x32(state.seed, state.offset, 0);
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

/// A text that is being made.
struct Text {
  std::size_t number;  ///< of its prompt
  Generator* generator;
  std::vector<std::int64_t> tokens;          ///< the last ones that fit the model's positions
  std::unique_ptr<nn::KeyValueCache> cache;  ///< of the first of them

  std::span<const std::int64_t> NewTokens() const {
    return std::span(tokens).subspan(static_cast<std::size_t>(cache->length()));
  }
};

/// Runs a model on the tokens of texts that their caches lack.
class NextTokens {
 public:
  explicit NextTokens(const models::Model& model)
      : model_(*model.module), device_(model_.head_weight().device()) {}

  /// The logits of the next tokens, a row for each text.
  std::vector<float> Logits(const std::vector<Text>& texts) {
    if (texts.size() > 1) return LogitsOfPass(texts);
    const Text& text = texts.front();
    if (text.cache->length() == 0 || text.NewTokens().size() != 1) {
      steps_.reset();
      return LogitsOfPass(texts);
    }
    const Tensor token = Ids(text.NewTokens());
    if (!steps_) {
      steps_.emplace(model_, *text.cache, token);
    } else {
      CopyInPlace(steps_->tokens(), token);
    }
    steps_->Step();
    return To(steps_->logits(), DataType::kFloat32).ToVector<float>();
  }

 private:
  Tensor Ids(std::span<const std::int64_t> tokens) const {
    return To(Tensor::FromVector(std::vector<std::int64_t>(tokens.begin(), tokens.end()),
                                 {1, static_cast<std::int64_t>(tokens.size())}),
              device_);
  }

  /// All texts one after another in one pass.
  std::vector<float> LogitsOfPass(const std::vector<Text>& texts) {
    std::vector<std::int64_t> tokens;
    std::vector<std::int64_t> last;
    std::vector<nn::CachedSequence> sequences;
    for (const Text& text : texts) {
      const std::span<const std::int64_t> added = text.NewTokens();
      tokens.insert(tokens.end(), added.begin(), added.end());
      last.push_back(static_cast<std::int64_t>(tokens.size()) - 1);
      sequences.push_back({text.cache.get(), static_cast<std::int64_t>(added.size())});
    }
    const Tensor hidden = model_.HiddenStates(Ids(tokens), {.sequences = sequences});
    const auto rows = static_cast<std::int64_t>(last.size());
    const Tensor ends = IndexSelect(hidden, 1, To(Tensor::FromVector(last, {rows}), device_));
    return To(Linear(ends, model_.head_weight()), DataType::kFloat32).ToVector<float>();
  }

  nn::Transformer& model_;
  Device device_;
  std::optional<nn::TokenGraph> steps_;  ///< of the only text
};

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

void CheckPromptLength(std::int64_t tokens, const nn::TransformerConfig& config) {
  if (tokens > config.max_position_embeddings) {
    throw Error(fmt::format("prompt: expected at most {} tokens, the model's positions, got {}",
                            config.max_position_embeddings, tokens));
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

void Generate(const models::Model& model, std::span<const Prompt> prompts, std::int64_t start_token,
              std::int64_t max_new_tokens, const std::vector<std::int64_t>& stop_tokens,
              const SamplingOptions& options,
              const std::function<bool(std::size_t, std::int64_t)>& on_token) {
  CheckSamplingOptions(options);
  const nn::TransformerConfig& config = model.config.transformer;
  const std::int64_t positions = config.max_position_embeddings;
  std::vector<Text> texts;
  for (const Prompt& prompt : prompts) {
    std::vector<std::int64_t> tokens = prompt.tokens;
    if (tokens.empty()) {
      if (start_token < 0) {
        throw Error("expected a prompt: the model names no token that starts a text");
      }
      tokens.push_back(start_token);
    }
    const auto length = static_cast<std::int64_t>(tokens.size());
    CheckPromptLength(length, config);
    if (max_new_tokens <= 0) continue;
    const std::int64_t capacity = length + std::min(max_new_tokens, positions - length);
    texts.push_back(
        {.number = texts.size(),
         .generator = prompt.generator,
         .tokens = std::move(tokens),
         .cache = std::make_unique<nn::KeyValueCache>(config.num_hidden_layers, capacity)});
  }
  const NoGrad no_grad;
  NextTokens next(model);
  for (std::int64_t i = 0; i < max_new_tokens && !texts.empty(); ++i) {
    const std::vector<float> logits = next.Logits(texts);
    const std::size_t vocabulary = logits.size() / texts.size();
    std::vector<Text> unfinished;
    for (std::size_t row = 0; row < texts.size(); ++row) {
      Text& text = texts[row];
      const std::int64_t token =
          SampleToken(std::span(logits).subspan(row * vocabulary, vocabulary), options,
                      NextUniform(*text.generator));
      const bool stop =
          std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end();
      if (!on_token(text.number, token) || stop) continue;
      text.tokens.push_back(token);
      if (static_cast<std::int64_t>(text.tokens.size()) > positions) {
        const std::int64_t keep = std::max<std::int64_t>(positions / 2, 1);
        text.tokens.erase(text.tokens.begin(), text.tokens.end() - keep);
        text.cache->Truncate(0);
      }
      unfinished.push_back(std::move(text));
    }
    texts = std::move(unfinished);
  }
}

void Generate(const models::Model& model, const std::vector<std::int64_t>& prompt,
              std::int64_t start_token, std::int64_t max_new_tokens,
              const std::vector<std::int64_t>& stop_tokens, const SamplingOptions& options,
              Generator& generator, const std::function<bool(std::int64_t)>& on_token) {
  const Prompt prompts[] = {{prompt, &generator}};
  Generate(model, prompts, start_token, max_new_tokens, stop_tokens, options,
           [&](std::size_t, std::int64_t token) { return on_token(token); });
}

}  // namespace infini_train::trainer
