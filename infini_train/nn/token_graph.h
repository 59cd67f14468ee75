#pragma once

#include <cstdint>
#include <optional>

#include "infini_train/core/api.h"
#include "infini_train/core/device/graph.h"
#include "infini_train/core/tensor.h"
#include "infini_train/nn/key_value_cache.h"
#include "infini_train/nn/transformer.h"

namespace infini_train::nn {

/// Generation after prompts, a token of each sequence of a cache a step, whatever their lengths.
/// Where the device has graphs and nobody watches the model, steps are captured after two, if they
/// can be, and replayed from then on: the host does next to nothing for a token. When the cache
/// takes larger buffers, steps are captured anew.
///
///     model.HiddenStates(ids, {.cache = &cache, .prompts = prompts});
///     TokenGraph steps(model, cache, last_tokens);
///     for (...) { steps.Step(); Read(steps.tokens()); }
class INFINI_TRAIN_API TokenGraph {
 public:
  /// Begins with `tokens`, int64 [B, 1] on the model's device, as the next ones. `model` and
  /// `cache` outlive this. Between steps the cache may change: it may take prompts.
  TokenGraph(Transformer& model, KeyValueCache& cache, const Tensor& tokens);

  /// Runs the model on tokens(), which then become the most likely next ones. Without gradients.
  /// Throws Error when the cache is full.
  void Step();

  /// The next input, int64 [B, 1]; write it to go on with others than the most likely ones.
  const Tensor& tokens() const { return tokens_; }
  /// Of the last step, [B, V]; written anew by the next one.
  const Tensor& logits() const { return logits_; }
  /// Whether steps are replays of a graph.
  bool captured() const { return graph_.has_value(); }

 private:
  void Run();
  /// Whether the next step is captured, from now on.
  bool TryCapture();

  Transformer& model_;
  KeyValueCache& cache_;
  Tensor tokens_;
  Tensor logits_;
  std::int64_t steps_ = 0;  ///< with these buffers of the cache
  std::int64_t room_ = 0;   ///< which they have
  std::optional<DeviceGraph> graph_;
};

}  // namespace infini_train::nn
