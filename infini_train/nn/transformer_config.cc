#include "infini_train/nn/transformer_config.h"

#include <fmt/format.h>

#include "infini_train/core/error.h"

namespace infini_train::nn {
namespace {

/// Values in the matrices of one block.
std::int64_t BlockMatrixParameters(const TransformerConfig& c) {
  const std::int64_t queries = c.num_attention_heads * c.head_dim;
  const std::int64_t keys = c.num_key_value_heads * c.head_dim;
  const std::int64_t attention = c.hidden_size * (queries + 2 * keys) + queries * c.hidden_size;
  const std::int64_t up = c.activation == Activation::kSwiGlu ? 2 : 1;
  return attention + (up + 1) * c.hidden_size * c.intermediate_size;
}

}  // namespace

void TransformerConfig::Validate() const {
  std::string problems;
  const auto require = [&](bool condition, const std::string& problem) {
    if (!condition) problems += (problems.empty() ? "" : "; ") + problem;
  };
  const std::pair<const char*, std::int64_t> positive[] = {
      {"vocab_size", vocab_size},
      {"max_position_embeddings", max_position_embeddings},
      {"hidden_size", hidden_size},
      {"num_hidden_layers", num_hidden_layers},
      {"num_attention_heads", num_attention_heads},
      {"num_key_value_heads", num_key_value_heads},
      {"head_dim", head_dim},
      {"intermediate_size", intermediate_size}};
  for (const auto& [name, value] : positive) {
    require(value > 0 && value < (std::int64_t{1} << 31),
            fmt::format("{}: expected a positive 31-bit number, got {}", name, value));
  }
  require(
      num_key_value_heads <= 0 || num_attention_heads % num_key_value_heads == 0,
      fmt::format("num_attention_heads: expected a multiple of num_key_value_heads ({}), got {}",
                  num_key_value_heads, num_attention_heads));
  require(position_embedding != PositionEmbedding::kRotary || head_dim % 2 == 0,
          fmt::format("head_dim: expected an even number for rotary positions, got {}", head_dim));
  require(norm_eps > 0, fmt::format("norm_eps: expected a positive number, got {}", norm_eps));
  require(rope_theta > 0,
          fmt::format("rope_theta: expected a positive number, got {}", rope_theta));
  require(sliding_window >= 0,
          fmt::format("sliding_window: expected 0 or more, got {}", sliding_window));
  const std::pair<const char*, double> probabilities[] = {{"embedding_dropout", embedding_dropout},
                                                          {"attention_dropout", attention_dropout},
                                                          {"residual_dropout", residual_dropout}};
  for (const auto& [name, value] : probabilities) {
    require(value >= 0.0 && value < 1.0,
            fmt::format("{}: expected 0 <= p < 1, got {}", name, value));
  }
  if (!problems.empty()) throw Error("model configuration: " + problems);
}

std::int64_t TransformerConfig::NumParameters() const {
  const std::int64_t norm_size = norm == NormType::kLayerNorm ? 2 * hidden_size : hidden_size;
  const std::int64_t keys = num_key_value_heads * head_dim;
  std::int64_t block = BlockMatrixParameters(*this) + 2 * norm_size;
  if (attention_bias) block += num_attention_heads * head_dim + 2 * keys;
  if (attention_output_bias) block += hidden_size;
  if (mlp_bias) {
    block += (activation == Activation::kSwiGlu ? 2 : 1) * intermediate_size + hidden_size;
  }
  if (query_key_norm) block += 2 * head_dim;
  std::int64_t total = vocab_size * hidden_size + num_hidden_layers * block + norm_size;
  if (position_embedding == PositionEmbedding::kLearned) {
    total += max_position_embeddings * hidden_size;
  }
  if (!tie_word_embeddings) total += vocab_size * hidden_size;
  return total;
}

double TransformerConfig::TrainingFlopsPerToken(std::int64_t sequence_length) const {
  const double matrices = static_cast<double>(num_hidden_layers * BlockMatrixParameters(*this) +
                                              vocab_size * hidden_size);
  const double attention = static_cast<double>(num_hidden_layers * num_attention_heads * head_dim) *
                           static_cast<double>(sequence_length);
  return 6.0 * matrices + 6.0 * attention;
}

}  // namespace infini_train::nn
