#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "infini_train/nn/transformer_config.h"

namespace infini_train::nn {

/// GPT-2's kind: learned positions, LayerNorm, GELU, biases, a tied head.
inline TransformerConfig TinyGpt2() {
  TransformerConfig config;
  config.vocab_size = 31;
  config.max_position_embeddings = 16;
  config.hidden_size = 24;
  config.num_hidden_layers = 3;
  config.num_attention_heads = config.num_key_value_heads = 4;
  config.head_dim = 6;
  config.intermediate_size = 40;
  return config;
}

/// Qwen3's kind: rotary positions, RMSNorm (also on queries and keys), grouped heads, SwiGLU, no
/// biases, a head of its own.
inline TransformerConfig TinyQwen3() {
  TransformerConfig config = TinyGpt2();
  config.num_hidden_layers = 2;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.norm = NormType::kRmsNorm;
  config.activation = Activation::kSwiGlu;
  config.position_embedding = PositionEmbedding::kRotary;
  config.attention_bias = config.attention_output_bias = config.mlp_bias = false;
  config.query_key_norm = true;
  config.tie_word_embeddings = false;
  return config;
}

/// Mixtral's kind: a mixture of SwiGLU experts, trained with the load-balancing loss.
inline TransformerConfig TinyMixtral() {
  TransformerConfig config = TinyQwen3();
  config.query_key_norm = false;
  config.intermediate_size = 10;
  config.num_local_experts = 4;
  config.num_experts_per_tok = 2;
  config.output_router_logits = true;
  config.router_aux_loss_coef = 0.1;
  return config;
}

/// Of tests over TinyGpt2, TinyQwen3 and TinyMixtral, in this order.
inline std::string NameOfKind(std::size_t index) {
  return std::array{"Gpt2", "Qwen3", "Mixtral"}.at(index);
}

}  // namespace infini_train::nn
