#include "infini_train/trainer/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <optional>
#include <tuple>
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

/// Tokens from the most likely one on, of equal ones the first before the others; sorted as far as
/// that is asked for, since a draw rarely ends far behind.
class FallingOrder {
 public:
  explicit FallingOrder(std::span<const float> logits) : logits_(logits), tokens_(logits.size()) {
    std::iota(tokens_.begin(), tokens_.end(), 0);
  }

  std::size_t size() const { return tokens_.size(); }
  /// All of them, only partly in order.
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  /// Leaves the first `count`, 1 to size().
  void Keep(std::size_t count) {
    Find(0, count);
    tokens_.resize(count);
  }
  std::int64_t operator[](std::size_t i) {
    constexpr std::size_t kAtFirst = 64;
    if (i >= sorted_) {
      const std::size_t end = std::min(std::max({i + 1, 4 * sorted_, kAtFirst}), size());
      Find(sorted_, end);
      std::sort(At(sorted_), At(end), Before{logits_});
      sorted_ = end;
    }
    return tokens_[i];
  }

 private:
  struct Before {
    std::span<const float> logits;
    bool operator()(std::int32_t a, std::int32_t b) const {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    }
  };

  std::vector<std::int32_t>::iterator At(std::size_t i) {
    return tokens_.begin() + static_cast<std::ptrdiff_t>(i);
  }
  /// Puts what belongs there into places `begin` to `end`, where those before are as they should
  /// be.
  void Find(std::size_t begin, std::size_t end) {
    if (end < size()) std::nth_element(At(begin), At(end - 1), tokens_.end(), Before{logits_});
  }

  std::span<const float> logits_;
  std::vector<std::int32_t> tokens_;
  std::size_t sorted_ = 0;
};

/// Tokens of prompts that go through the model at a time, unless one alone has more: activations of
/// a pass take memory.
constexpr std::int64_t kPromptTokens = 16384;

/// A text that is being made.
struct Text {
  std::size_t number = 0;  ///< of its prompt
  Generator* generator = nullptr;
  std::vector<std::int64_t> tokens;  ///< the last ones that fit the model's positions
  std::int64_t left = 0;             ///< tokens that may still be chosen
};

/// Places for texts, each a sequence of one cache, and the model that continues all of them at
/// once.
class Places {
 public:
  Places(const models::Model& model, std::int64_t capacity, std::size_t count)
      : model_(*model.module),
        device_(model_.head_weight().device()),
        cache_(model_.config().num_hidden_layers, capacity, static_cast<std::int64_t>(count)),
        next_(count, 0),
        busy_(count, false) {
    steps_.emplace(model_, cache_, Ids(next_, {cache_.batch_size(), 1}));
  }

  /// A place's text is now `tokens`.
  void Begin(std::size_t place, std::span<const std::int64_t> tokens) {
    cache_.Clear(static_cast<std::int64_t>(place));
    busy_[place] = true;
    Continue(place, tokens.back());
    if (tokens.size() > 1) prompts_.push_back({place, {tokens.begin(), tokens.end() - 1}});
  }
  void Continue(std::size_t place, std::int64_t token) { next_[place] = token; }
  void End(std::size_t place) { busy_[place] = false; }

  /// Gives the places without a text up; the others keep their order.
  void DropIdle() {
    RunPrompts();
    steps_.reset();
    std::vector<std::int64_t> kept, next;
    for (std::size_t i = 0; i < busy_.size(); ++i) {
      if (!busy_[i]) continue;
      kept.push_back(static_cast<std::int64_t>(i));
      next.push_back(next_[i]);
    }
    cache_.Keep(kept);
    next_ = std::move(next);
    busy_.assign(kept.size(), true);
    steps_.emplace(model_, cache_, Ids(next_, {cache_.batch_size(), 1}));
  }

  /// Computes what logits() and MostLikely() are about.
  void Step() {
    RunPrompts();
    ClearIdle();
    CopyInPlace(steps_->tokens(), Ids(next_, {cache_.batch_size(), 1}));
    steps_->Step();
  }

  /// Of the next token of each place, a row each.
  std::vector<float> Logits() const {
    return To(steps_->logits(), DataType::kFloat32).ToVector<float>();
  }
  /// The most likely next token of each place, with its logit.
  std::pair<std::vector<std::int64_t>, std::vector<float>> MostLikely() const {
    const Tensor logits = Gather(steps_->logits(), 1, steps_->tokens());
    return {steps_->tokens().ToVector<std::int64_t>(),
            To(logits, DataType::kFloat32).ToVector<float>()};
  }

 private:
  struct NewPrompt {
    std::size_t place;
    std::vector<std::int64_t> tokens;
  };

  Tensor Ids(const std::vector<std::int64_t>& ids, const Dims& shape) const {
    return To(Tensor::FromVector(ids, shape), device_);
  }

  /// Fills the cache with the new prompts, as many of them as may be in one pass.
  void RunPrompts() {
    std::vector<std::int64_t> ids;
    std::vector<nn::CachedPrompt> prompts;
    const auto run = [&] {
      const auto tokens = static_cast<std::int64_t>(ids.size());
      model_.HiddenStates(Ids(ids, {1, tokens}), {.cache = &cache_, .prompts = prompts});
      ids.clear();
      prompts.clear();
    };
    for (const NewPrompt& prompt : prompts_) {
      const auto tokens = static_cast<std::int64_t>(prompt.tokens.size());
      if (!ids.empty() && static_cast<std::int64_t>(ids.size()) + tokens > kPromptTokens) run();
      ids.insert(ids.end(), prompt.tokens.begin(), prompt.tokens.end());
      prompts.push_back({static_cast<std::int64_t>(prompt.place), tokens});
    }
    if (!ids.empty()) run();
    prompts_.clear();
  }

  /// A place without a text goes through the steps, too: it shall not be longer than the texts.
  void ClearIdle() {
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < busy_.size(); ++i) {
      if (busy_[i]) longest = std::max(longest, cache_.lengths()[i]);
    }
    for (std::size_t i = 0; i < busy_.size(); ++i) {
      if (!busy_[i] && cache_.lengths()[i] > longest) cache_.Clear(static_cast<std::int64_t>(i));
    }
  }

  nn::Transformer& model_;
  Device device_;
  nn::KeyValueCache cache_;
  std::vector<std::int64_t> next_;
  std::vector<bool> busy_;
  std::vector<NewPrompt> prompts_;
  std::optional<nn::TokenGraph> steps_;
};

/// The next token of each place by the options: the generator of its text gives a number for each,
/// whether that is needed or not.
class Chooser {
 public:
  Chooser(const Places& places, std::size_t count, const SamplingOptions& options)
      : options_(options) {
    if (options.temperature == 0.0) {
      std::tie(tokens_, logits_) = places.MostLikely();
    } else {
      logits_ = places.Logits();
    }
    row_size_ = logits_.size() / count;
  }

  std::int64_t Choose(std::size_t place, Generator& generator) const {
    const double uniform = NextUniform(generator);
    const auto row = std::span(logits_).subspan(place * row_size_, row_size_);
    const std::int64_t chosen = SampleToken(row, options_, uniform);
    return tokens_.empty() ? chosen : tokens_[place];
  }

 private:
  const SamplingOptions& options_;
  std::vector<std::int64_t> tokens_;  ///< the most likely ones, where the logits are of them alone
  std::vector<float> logits_;
  std::size_t row_size_;
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
  FallingOrder order(logits);
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < order.size())
    order.Keep(static_cast<std::size_t>(options.top_k));
  const auto weight = [&](std::int64_t token) {
    return std::exp((static_cast<double>(logits[token]) - *most_likely) / options.temperature);
  };
  double total = 0.0;
  for (const std::int32_t token : order.tokens())
    total += weight(token);
  std::size_t count = order.size();
  if (options.top_p < 1.0) {
    double kept = 0.0;
    count = 0;
    while (count < order.size() && kept < options.top_p * total)
      kept += weight(order[count++]);
    total = kept;
  }
  double threshold = uniform * total;
  for (std::size_t i = 0; i < count; ++i) {
    threshold -= weight(order[i]);
    if (threshold < 0.0) return order[i];
  }
  return order[count - 1];
}

void Generate(const models::Model& model, std::span<const Prompt> prompts, std::int64_t start_token,
              std::int64_t max_new_tokens, const std::vector<std::int64_t>& stop_tokens,
              const SamplingOptions& options, std::int64_t batch_size,
              const std::function<bool(std::size_t, std::int64_t)>& on_token) {
  CheckSamplingOptions(options);
  if (batch_size <= 0)
    throw Error(fmt::format("batch_size: expected a positive number, got {}", batch_size));
  const nn::TransformerConfig& config = model.config.transformer;
  const std::int64_t positions = config.max_position_embeddings;
  std::deque<Text> waiting;
  std::int64_t capacity = 0;
  for (const Prompt& prompt : prompts) {
    Text text{waiting.size(), prompt.generator, prompt.tokens, max_new_tokens};
    if (text.tokens.empty()) {
      if (start_token < 0) {
        throw Error("expected a prompt: the model names no token that starts a text");
      }
      text.tokens.push_back(start_token);
    }
    const auto length = static_cast<std::int64_t>(text.tokens.size());
    CheckPromptLength(length, config);
    // The last token that is chosen is not read again.
    capacity = std::max(capacity, length + std::min(max_new_tokens - 1, positions - length));
    waiting.push_back(std::move(text));
  }
  if (max_new_tokens <= 0 || waiting.empty()) return;
  const NoGrad no_grad;
  std::vector<std::optional<Text>> texts(
      std::min(static_cast<std::size_t>(batch_size), waiting.size()));
  Places places(model, capacity, texts.size());
  for (;;) {
    for (std::size_t place = 0; place < texts.size() && !waiting.empty(); ++place) {
      if (texts[place]) continue;
      texts[place] = std::move(waiting.front());
      waiting.pop_front();
      places.Begin(place, texts[place]->tokens);
    }
    const auto left = static_cast<std::size_t>(std::count_if(
        texts.begin(), texts.end(), [](const auto& text) { return text.has_value(); }));
    if (left == 0) return;
    // Each time costs a copy of the cache and a capture.
    if (2 * left <= texts.size()) {
      places.DropIdle();
      std::erase(texts, std::nullopt);
    }
    places.Step();
    const Chooser chooser(places, texts.size(), options);
    for (std::size_t place = 0; place < texts.size(); ++place) {
      if (!texts[place]) continue;
      Text& text = *texts[place];
      const std::int64_t token = chooser.Choose(place, *text.generator);
      const bool stop =
          std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end();
      if (!on_token(text.number, token) || stop || --text.left == 0) {
        places.End(place);
        texts[place].reset();
        continue;
      }
      text.tokens.push_back(token);
      if (static_cast<std::int64_t>(text.tokens.size()) > positions) {
        const std::int64_t keep = std::max<std::int64_t>(positions / 2, 1);
        text.tokens.erase(text.tokens.begin(), text.tokens.end() - keep);
        places.Begin(place, text.tokens);
      } else {
        places.Continue(place, token);
      }
    }
  }
}

void Generate(const models::Model& model, const std::vector<std::int64_t>& prompt,
              std::int64_t start_token, std::int64_t max_new_tokens,
              const std::vector<std::int64_t>& stop_tokens, const SamplingOptions& options,
              Generator& generator, const std::function<bool(std::int64_t)>& on_token) {
  const Prompt prompts[] = {{prompt, &generator}};
  Generate(model, prompts, start_token, max_new_tokens, stop_tokens, options, 1,
           [&](std::size_t, std::int64_t token) { return on_token(token); });
}

}  // namespace infini_train::trainer
