#pragma once

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

}  // namespace infini_train::nn
