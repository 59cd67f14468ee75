#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/models/model.h"
#include "tests/common/bytes.h"

namespace infini_train::test {

using models::CreateModel;
using models::Model;
using models::ModelConfig;

/// A GPT-2 in which every size differs from the others.
inline ModelConfig SmallConfig() {
  ModelConfig config;
  config.family = "gpt2";
  config.bos_token_id = 3;
  config.eos_token_ids = {3};
  nn::TransformerConfig& t = config.transformer;
  t.vocab_size = 21;
  t.max_position_embeddings = 9;
  t.hidden_size = 8;
  t.num_hidden_layers = 2;
  t.num_attention_heads = t.num_key_value_heads = 2;
  t.head_dim = 4;
  t.intermediate_size = 32;
  return config;
}

/// A "llama", "qwen3" or "mixtral" in which every size differs from the others; no biases.
inline ModelConfig SmallDecoderConfig(const std::string& family) {
  ModelConfig config =
      models::FindPreset(family + (family == "llama" ? "3-nano" : "-nano"))->config;
  config.bos_token_id = 3;
  config.eos_token_ids = {3, 5};
  nn::TransformerConfig& t = config.transformer;
  t.vocab_size = 21;
  t.max_position_embeddings = 9;
  t.hidden_size = 16;
  t.num_hidden_layers = 3;
  t.num_attention_heads = 4;
  t.num_key_value_heads = 2;
  t.head_dim = 6;
  t.intermediate_size = 20;
  t.tie_word_embeddings = false;
  return config;
}

/// A model no two of whose values are equal, biases and norms included.
inline Model SmallModel(const ModelConfig& config = SmallConfig()) {
  Model model = CreateModel(config, 1);
  const NoGrad no_grad;
  Generator generator(2);
  for (const auto& [name, parameter] : model.module->NamedParameters()) {
    CopyInPlace(parameter,
                Normal(parameter.shape(), 0.0, 1.0, DataType::kFloat32, Device(), &generator));
  }
  return model;
}

inline void ExpectSameModel(const Model& a, const Model& b) {
  EXPECT_EQ(a.config, b.config);
  const NamedTensors left = a.module->NamedParameters();
  const NamedTensors right = b.module->NamedParameters();
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].first, right[i].first);
    EXPECT_EQ(BytesOf(left[i].second), BytesOf(right[i].second)) << left[i].first;
  }
}

/// Peak memory of the process in KiB.
inline long PeakMemory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

}  // namespace infini_train::test
