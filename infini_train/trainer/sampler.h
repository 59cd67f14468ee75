#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/generator.h"
#include "infini_train/core/tensor.h"
#include "infini_train/models/model.h"
#include "infini_train/trainer/options.h"

namespace infini_train::trainer {

/// Throws Error unless temperature and top_k are not negative and 0 < top_p <= 1.
INFINI_TRAIN_API void CheckSamplingOptions(const SamplingOptions& options);

/// Chooses a token from logits (real numbers or -infinity; Error on others, or if all are).
/// Temperature 0 takes the most likely one. Otherwise probabilities are softmax(logits /
/// temperature), cut to the top_k most likely (0: all) and then to the fewest that reach top_p
/// together, and drawn from with `uniform` in [0, 1).
INFINI_TRAIN_API std::int64_t SampleToken(std::span<const float> logits,
                                          const SamplingOptions& options, double uniform);

/// Throws Error unless a prompt of so many tokens fits the model's positions.
INFINI_TRAIN_API void CheckPromptLength(std::int64_t tokens, const nn::TransformerConfig& config);

/// A text to continue, and where the numbers that choose its tokens come from: one for each token.
struct Prompt {
  std::vector<std::int64_t> tokens;
  Generator* generator = nullptr;
};

/// Continues each prompt by at most max_new_tokens, batch_size texts at a time, of any lengths: one
/// pass of the model a token for all of them, each at its own position of a cache. A text that ends
/// makes room for the next prompt. A text is what it is alone (up to the rounding of matrix
/// products, and but for MatmulPrecision::kFp8, where the tokens of a pass share scales).
/// `on_token` gets the number of a prompt and a token as it is chosen; returning false ends that
/// text, as does a token of `stop_tokens` (which is still handed over). When a text fills the
/// model's positions its oldest half is dropped and the rest is run again. An empty prompt starts
/// from `start_token`. Throws Error when both are missing, or a prompt exceeds the positions.
INFINI_TRAIN_API void Generate(const models::Model& model, std::span<const Prompt> prompts,
                               std::int64_t start_token, std::int64_t max_new_tokens,
                               const std::vector<std::int64_t>& stop_tokens,
                               const SamplingOptions& options, std::int64_t batch_size,
                               const std::function<bool(std::size_t, std::int64_t)>& on_token);
/// The same for one prompt.
INFINI_TRAIN_API void Generate(const models::Model& model, const std::vector<std::int64_t>& prompt,
                               std::int64_t start_token, std::int64_t max_new_tokens,
                               const std::vector<std::int64_t>& stop_tokens,
                               const SamplingOptions& options, Generator& generator,
                               const std::function<bool(std::int64_t)>& on_token);

}  // namespace infini_train::trainer
