#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/core/api.h"

namespace infini_train::nn {

enum class NormType : std::uint8_t { kLayerNorm, kRmsNorm };

enum class PositionEmbedding : std::uint8_t { kLearned, kRotary };

enum class Activation : std::uint8_t {
  kGelu,      ///< erf form
  kGeluTanh,  ///< "gelu_new", "gelu_pytorch_tanh"
  kRelu,
  kSwiGlu,  ///< gated: silu(gate) * up, packed [gate | up]
};

/// Frequency scaling of Llama 3.1 and later (rope_type "llama3").
struct RopeScaling {
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;
  bool operator==(const RopeScaling&) const = default;
};

/// A decoder-only transformer: pre-norm blocks x + Attention(Norm(x)), x + Mlp(Norm(x)), a final
/// norm and a linear head. Fields have the names of Hugging Face's config.json where that has one.
struct TransformerConfig {
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;

  NormType norm = NormType::kLayerNorm;
  double norm_eps = 1e-5;
  Activation activation = Activation::kGeluTanh;
  PositionEmbedding position_embedding = PositionEmbedding::kLearned;
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;

  bool attention_bias = true;         ///< on the query, key and value projections
  bool attention_output_bias = true;  ///< on the projection back to hidden_size
  bool mlp_bias = true;
  bool tie_word_embeddings = true;
  bool query_key_norm = false;      ///< RMSNorm over head_dim on queries and keys, before positions
  std::int64_t sliding_window = 0;  ///< 0 for none
  std::int64_t max_window_layers = 0;  ///< the first layers have none, whatever sliding_window is
  /// Factor on q kᵀ besides 1 / √head_dim (GPT-2's scale_attn_* fields).
  bool scale_attention = true;
  bool scale_attention_by_inverse_layer_index = false;

  double embedding_dropout = 0.0;
  double attention_dropout = 0.0;
  double residual_dropout = 0.0;

  double initializer_range = 0.02;

  /// Above 0 every block has a mixture of that many experts, each of intermediate_size, in place of
  /// its MLP (nn/mixture_of_experts.h).
  std::int64_t num_local_experts = 0;
  std::int64_t num_experts_per_tok = 0;
  /// Whether training adds router_aux_loss_coef times the load-balancing loss to the loss.
  bool output_router_logits = false;
  double router_aux_loss_coef = 0.0;
  double router_jitter_noise = 0.0;

  bool operator==(const TransformerConfig&) const = default;

  /// Throws Error that names every field whose value makes no sense, with value and expectation.
  INFINI_TRAIN_API void Validate() const;
  /// Number of parameters, tied ones counted once.
  INFINI_TRAIN_API std::int64_t NumParameters() const;
  /// Floating-point operations of one training step per token (forward and backward) at a sequence
  /// length: 6 per parameter in matrix products, of the experts those of one token, plus
  /// attention's 12 T per layer and head dimension, halved because it is causal.
  INFINI_TRAIN_API double TrainingFlopsPerToken(std::int64_t sequence_length) const;
};

}  // namespace infini_train::nn
