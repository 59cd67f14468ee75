#include "infini_train/nn/transformer_config.h"

#include <fmt/format.h>

#include <cmath>

#include "infini_train/core/error.h"

namespace infini_train::nn {
namespace {

/// Values in the matrices of one block, of `experts` experts where it has any. Counts are made in
/// T: std::int64_t is exact, and double does not overflow where sizes are still to be judged.
template <typename T>
T BlockMatrixParameters(const TransformerConfig& c, std::int64_t experts) {
  const auto hidden = static_cast<T>(c.hidden_size);
  const T queries = static_cast<T>(c.num_attention_heads) * static_cast<T>(c.head_dim);
  const T keys = static_cast<T>(c.num_key_value_heads) * static_cast<T>(c.head_dim);
  const T attention = hidden * (queries + 2 * keys) + queries * hidden;
  const T up = c.activation == Activation::kSwiGlu ? 2 : 1;
  const T mlp = (up + 1) * hidden * static_cast<T>(c.intermediate_size);
  if (c.num_local_experts == 0) return attention + mlp;
  return attention + static_cast<T>(experts) * mlp + static_cast<T>(c.num_local_experts) * hidden;
}

template <typename T>
T ParameterCount(const TransformerConfig& c) {
  const auto hidden = static_cast<T>(c.hidden_size);
  const auto head_dim = static_cast<T>(c.head_dim);
  const T norm_size = c.norm == NormType::kLayerNorm ? 2 * hidden : hidden;
  const T heads = static_cast<T>(c.num_attention_heads) + 2 * static_cast<T>(c.num_key_value_heads);
  T block = BlockMatrixParameters<T>(c, c.num_local_experts) + 2 * norm_size;
  if (c.attention_bias) block += heads * head_dim;
  if (c.attention_output_bias) block += hidden;
  if (c.mlp_bias) {
    const T up = c.activation == Activation::kSwiGlu ? 2 : 1;
    block += up * static_cast<T>(c.intermediate_size) + hidden;
  }
  if (c.query_key_norm) block += 2 * head_dim;
  const T embedding = static_cast<T>(c.vocab_size) * hidden;
  T total = embedding + static_cast<T>(c.num_hidden_layers) * block + norm_size;
  if (c.position_embedding == PositionEmbedding::kLearned) {
    total += static_cast<T>(c.max_position_embeddings) * hidden;
  }
  if (!c.tie_word_embeddings) total += embedding;
  return total;
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
  require(norm_eps > 0 && std::isfinite(norm_eps),
          fmt::format("norm_eps: expected a positive number, got {}", norm_eps));
  require(rope_theta > 0 && std::isfinite(rope_theta),
          fmt::format("rope_theta: expected a positive number, got {}", rope_theta));
  require(initializer_range >= 0,
          fmt::format("initializer_range: expected 0 or more, got {}", initializer_range));
  if (rope_scaling) {
    const RopeScaling& s = *rope_scaling;
    require(s.factor > 0 && s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor &&
                s.original_max_position_embeddings > 0,
            fmt::format("rope_scaling: expected a positive factor, 0 < low_freq_factor < "
                        "high_freq_factor and positive original positions, got {}, {}, {} and {}",
                        s.factor, s.low_freq_factor, s.high_freq_factor,
                        s.original_max_position_embeddings));
  }
  require(sliding_window >= 0,
          fmt::format("sliding_window: expected 0 or more, got {}", sliding_window));
  require(max_window_layers >= 0,
          fmt::format("max_window_layers: expected 0 or more, got {}", max_window_layers));
  const std::pair<const char*, double> probabilities[] = {{"embedding_dropout", embedding_dropout},
                                                          {"attention_dropout", attention_dropout},
                                                          {"residual_dropout", residual_dropout}};
  for (const auto& [name, value] : probabilities) {
    require(value >= 0.0 && value < 1.0,
            fmt::format("{}: expected 0 <= p < 1, got {}", name, value));
  }
  if (num_local_experts != 0) {
    require(num_local_experts > 0 && num_local_experts < (std::int64_t{1} << 31),
            fmt::format("num_local_experts: expected 0 or a positive 31-bit number, got {}",
                        num_local_experts));
    require(num_experts_per_tok > 0 && num_experts_per_tok <= num_local_experts,
            fmt::format("num_experts_per_tok: expected 1 to num_local_experts ({}), got {}",
                        num_local_experts, num_experts_per_tok));
    require(activation == Activation::kSwiGlu && !mlp_bias,
            "num_local_experts: expected experts with SwiGLU and without biases");
  }
  require(router_aux_loss_coef >= 0 && std::isfinite(router_aux_loss_coef),
          fmt::format("router_aux_loss_coef: expected 0 or more, got {}", router_aux_loss_coef));
  require(router_jitter_noise >= 0 && router_jitter_noise < 1,
          fmt::format("router_jitter_noise: expected 0 <= noise < 1, got {}", router_jitter_noise));
  if (problems.empty()) {
    const double parameters = ParameterCount<double>(*this);
    require(parameters < 0x1p48,
            fmt::format("expected fewer than 2^48 parameters, got {:.3g}", parameters));
  }
  if (!problems.empty()) throw Error("model configuration: " + problems);
}

std::int64_t TransformerConfig::NumParameters() const {
  return ParameterCount<std::int64_t>(*this);
}

double TransformerConfig::TrainingFlopsPerToken(std::int64_t sequence_length) const {
  const double matrices = static_cast<double>(
      num_hidden_layers * BlockMatrixParameters<std::int64_t>(*this, num_experts_per_tok) +
      vocab_size * hidden_size);
  const double attention = static_cast<double>(num_hidden_layers * num_attention_heads * head_dim) *
                           static_cast<double>(sequence_length);
  return 6.0 * matrices + 6.0 * attention;
}

}  // namespace infini_train::nn
