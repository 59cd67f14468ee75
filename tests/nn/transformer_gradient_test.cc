#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/nn/transformer.h"
#include "tests/common/device_test.h"
#include "tests/nn/tiny_transformers.h"

namespace infini_train::nn {
namespace {

/// Compares gradients in float64 with central differences, at several elements of each parameter.
void CheckGradients(Device device, TransformerConfig config) {
  config.vocab_size = 11;
  config.initializer_range = 0.5;
  Transformer model(config, {device, DataType::kFloat64});
  Generator generator(8);
  model.InitializeParameters(generator);
  const Tensor ids = RandomInt({2, 5}, 0, 11, DataType::kInt64, device, &generator);
  const Tensor targets = RandomInt({2, 5}, 0, 11, DataType::kInt64, device, &generator);
  const auto loss = [&] {
    ManualSeed(5);
    return model.Loss(ids, targets, 0.1);
  };

  Backward(loss());
  constexpr double kStep = 1e-5;
  for (const auto& [name, parameter] : model.NamedParameters()) {
    ASSERT_TRUE(parameter.grad().defined()) << name;
    const std::vector<double> gradient = parameter.grad().ToVector<double>();
    const std::vector<double> values = parameter.ToVector<double>();
    const std::int64_t stride = std::max<std::int64_t>(parameter.numel() / 7, 1);
    for (std::int64_t i = 0; i < parameter.numel(); i += stride) {
      const NoGrad no_grad;
      const auto loss_with_change = [&](double change) {
        std::vector<double> changed = values;
        changed[static_cast<std::size_t>(i)] += change;
        parameter.CopyFromHost(changed.data(), parameter.nbytes());
        return loss().Item();
      };
      const double above = loss_with_change(kStep);
      const double below = loss_with_change(-kStep);
      parameter.CopyFromHost(values.data(), parameter.nbytes());
      // Truncation is of order kStep²; the loss itself is rounded at 1e-16 / kStep.
      EXPECT_NEAR(gradient[static_cast<std::size_t>(i)], (above - below) / (2 * kStep), 1e-7)
          << name << " element " << i;
    }
  }
}

class TransformerGradientTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(TransformerGradientTest);

TEST_P(TransformerGradientTest, Gpt2Kind) {
  CheckGradients(device(), TinyGpt2());
}

TEST_P(TransformerGradientTest, Qwen3Kind) {
  CheckGradients(device(), TinyQwen3());
}

TEST_P(TransformerGradientTest, MixtralKind) {
  CheckGradients(device(), TinyMixtral());
}

TEST_P(TransformerGradientTest, OneExpertOfManyAndNoiseAtTheRouter) {
  TransformerConfig config = TinyMixtral();
  config.num_local_experts = 8;
  config.num_experts_per_tok = 1;
  config.router_jitter_noise = 0.2;
  CheckGradients(device(), config);
}

TEST_P(TransformerGradientTest, WindowsInverseLayerScalesAndOtherActivations) {
  TransformerConfig config = TinyGpt2();
  config.sliding_window = 2;
  config.scale_attention_by_inverse_layer_index = true;
  config.activation = Activation::kGelu;
  CheckGradients(device(), config);
}

}  // namespace
}  // namespace infini_train::nn
