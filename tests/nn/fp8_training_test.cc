// A small model learns in FP8 what it learns in bfloat16.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/threads.h"
#include "infini_train/nn/transformer.h"
#include "infini_train/ops/matmul_precision.h"
#include "infini_train/optim/optimizer.h"
#include "tests/nn/tiny_transformers.h"

namespace infini_train::nn {
namespace {

/// The mean loss of the last 20 of 200 steps on sequences of which each token follows from the last
/// three times in four.
double Train(MatmulPrecision precision, std::int64_t vocab_size) {
  SetMatmulPrecision(precision);
  TransformerConfig config = TinyGpt2();
  config.vocab_size = vocab_size;
  config.hidden_size = 32;
  config.head_dim = 8;
  config.intermediate_size = 128;
  config.num_hidden_layers = 2;
  Transformer model(config, {});
  Generator generator(3);
  model.InitializeParameters(generator);
  optim::AdamW optimizer({{.parameters = model.NamedParameters(), .weight_decay = 0.1}});
  constexpr int kSteps = 200;
  constexpr std::int64_t kBatch = 8, kLength = 16;
  double sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<std::int64_t> noise =
        RandomInt({kBatch, kLength + 1}, 0, 4 * config.vocab_size, DataType::kInt64, {}, &generator)
            .ToVector<std::int64_t>();
    std::vector<std::int64_t> inputs, targets;
    for (std::int64_t b = 0; b < kBatch; ++b) {
      std::int64_t token = noise[b * (kLength + 1)] % config.vocab_size;
      for (std::int64_t t = 0; t < kLength; ++t) {
        inputs.push_back(token);
        const std::int64_t draw = noise[b * (kLength + 1) + t + 1];
        token = draw < config.vocab_size ? draw : (token * 5 + 3) % config.vocab_size;
        targets.push_back(token);
      }
    }
    optimizer.ZeroGrad();
    const Autocast autocast(DataType::kBFloat16);
    const Tensor loss = model.Loss(Tensor::FromVector(inputs, {kBatch, kLength}),
                                   Tensor::FromVector(targets, {kBatch, kLength}),
                                   1.0 / static_cast<double>(kBatch * kLength));
    Backward(loss);
    model.UpdateFp8Scales();
    const optim::GradientNorm norm = optim::ComputeGradientNorm(model.Parameters(), 1.0);
    optimizer.Step(3e-3, norm.factor);
    if (step >= kSteps - 20) sum += loss.Item() / 20;
  }
  SetMatmulPrecision(MatmulPrecision::kFloat32);
  return sum;
}

TEST(Fp8Training, LossIsBFloat16sUpToOnePercent) {
  SetNumThreads(1);  // The model is too small to be shared.
  // With 32 classes the gradients of the head are in FP8 too.
  for (const std::int64_t vocab_size : {31, 32}) {
    const double expected = Train(MatmulPrecision::kFloat32, vocab_size);
    EXPECT_LT(expected, 2.2) << "nothing was learnt";
    EXPECT_NEAR(Train(MatmulPrecision::kFp8, vocab_size), expected, 0.01 * expected);
  }
}

}  // namespace
}  // namespace infini_train::nn
