#include "infini_train/nn/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/nn/layers.h"
#include "infini_train/nn/transformer.h"
#include "tests/common/device_test.h"
#include "tests/common/errors.h"
#include "tests/nn/tiny_transformers.h"

namespace infini_train::nn {
namespace {

using infini_train::test::MessageOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

class LoraTest : public DeviceTest {
 protected:
  Tensor Random(const Dims& shape, double stddev = 1.0) {
    return Normal(shape, 0.0, stddev, DataType::kFloat32, device(), &generator_);
  }

  /// A frozen layer of random numbers with adapters of features [0, 4) and [6, 9).
  std::shared_ptr<Linear> Adapted(double dropout = 0.0, DataType dtype = DataType::kFloat32) {
    auto linear = std::make_shared<Linear>(5, 9, true, TensorOptions{device(), dtype});
    const NoGrad no_grad;
    for (const auto& [name, parameter] : linear->NamedParameters()) {
      CopyInPlace(parameter, Random(parameter.shape()));
      parameter.set_requires_grad(false);
    }
    linear->set_lora(
        std::make_shared<LoraAdapters>(5, LoraAdapters::Options{2, 0.75, dropout}, device()));
    linear->lora()->Add("first", 0, 4, generator_);
    linear->lora()->Add("last", 6, 3, generator_);
    return linear;
  }

  void FillB(const Linear& linear) {
    const NoGrad no_grad;
    for (const auto& adapter : linear.lora()->adapters())
      CopyInPlace(adapter.b, Random(adapter.b.shape()));
  }

  Generator generator_{3};
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(LoraTest);

TEST_P(LoraTest, ChangesNothingAtFirst) {
  const auto linear = Adapted();
  const Tensor x = Random({3, 5});
  const Tensor expected = infini_train::Linear(x, linear->weight(), linear->bias());
  EXPECT_EQ((*linear)(x).ToVector<float>(), expected.ToVector<float>());
  const LoraAdapters::Adapter& adapter = linear->lora()->adapters().front();
  const std::vector<float> a = adapter.a.ToVector<float>();
  EXPECT_THAT(a, Each(FloatNear(0.0F, 1.0F / std::sqrt(5.0F))));
  EXPECT_NE(a, linear->lora()->adapters().back().a.ToVector<float>());
  EXPECT_THAT(adapter.b.ToVector<float>(), Each(0.0F));
}

TEST_P(LoraTest, AddsScaledProductsAndTrainsThemAlone) {
  const auto linear = Adapted();
  FillB(*linear);
  const Tensor x = Random({3, 5});
  x.set_requires_grad();
  const Tensor y = (*linear)(x);
  const auto parameters = linear->NamedParameters();
  ASSERT_EQ(parameters.size(), 6u);
  EXPECT_EQ(parameters[2].first, "lora.first.A");
  EXPECT_EQ(parameters[5].first, "lora.last.B");

  const Tensor plain = infini_train::Linear(x.Detach(), linear->weight(), linear->bias());
  std::vector<Tensor> parts;
  const auto part = [&](std::size_t i) {
    const auto& adapter = linear->lora()->adapters()[i];
    return Matmul(Matmul(x.Detach(), Transpose(adapter.a, 0, 1)), Transpose(adapter.b, 0, 1)) *
           Scalar(0.75);
  };
  const Tensor expected =
      plain + Concat({part(0), Zeros({3, 2}, DataType::kFloat32, device()), part(1)}, 1);
  EXPECT_THAT(y.ToVector<float>(), Pointwise(FloatNear(1e-5F), expected.ToVector<float>()));

  Backward(Sum(y));
  for (const auto& [name, parameter] : parameters)
    EXPECT_EQ(parameter.grad().defined(), name.starts_with("lora.")) << name;
  EXPECT_TRUE(x.grad().defined());
}

TEST_P(LoraTest, DropoutIsOfTheInputAndInTrainingAlone) {
  const auto linear = Adapted(0.5);
  FillB(*linear);
  const Tensor x = Random({64, 5});
  const auto run = [&] { return (*linear)(x).ToVector<float>(); };
  linear->Train(true);
  EXPECT_NE(run(), run());
  linear->Train(false);
  EXPECT_EQ(run(), run());
  // The features without an adapter see no dropout.
  linear->Train(true);
  const Tensor y = Slice((*linear)(x), 1, 4, 6);
  const Tensor plain = Slice(infini_train::Linear(x, linear->weight(), linear->bias()), 1, 4, 6);
  EXPECT_EQ(y.ToVector<float>(), plain.ToVector<float>());
}

TEST_P(LoraTest, MergedWeightsComputeTheSameAndUnmergeBitForBit) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    const auto linear = Adapted(0.0, dtype);
    FillB(*linear);
    const Tensor x = To(Random({3, 5}), dtype);
    const auto weight = To(linear->weight().Detach(), DataType::kFloat32).ToVector<float>();
    const auto before = To((*linear)(x).Detach(), DataType::kFloat32).ToVector<float>();
    EXPECT_FALSE(linear->CanFuse());
    linear->lora()->Merge(linear->weight(), true);
    EXPECT_TRUE(linear->CanFuse());
    const auto merged = To((*linear)(x).Detach(), DataType::kFloat32).ToVector<float>();
    EXPECT_THAT(merged, Pointwise(FloatNear(dtype == DataType::kFloat32 ? 1e-5F : 0.3F), before));
    EXPECT_NE(To(linear->weight().Detach(), DataType::kFloat32).ToVector<float>(), weight);
    linear->lora()->Unmerge(linear->weight());
    EXPECT_EQ(To(linear->weight().Detach(), DataType::kFloat32).ToVector<float>(), weight);
    EXPECT_EQ(To((*linear)(x).Detach(), DataType::kFloat32).ToVector<float>(), before);
  }
}

TEST_P(LoraTest, FusedMlpStepsAside) {
  TransformerConfig config = TinyGpt2();
  Mlp mlp(config, {device()});
  for (const auto& [name, parameter] : mlp.NamedParameters()) {
    const NoGrad no_grad;
    CopyInPlace(parameter, Random(parameter.shape(), 0.3));
  }
  Linear* fc = nullptr;
  for (const auto& [name, module] : mlp.NamedModules())
    if (name == "c_fc") fc = dynamic_cast<Linear*>(module);
  ASSERT_NE(fc, nullptr);
  const Tensor x = Random({2, 3, config.hidden_size});
  const auto without = mlp(x).ToVector<float>();
  fc->set_lora(std::make_shared<LoraAdapters>(config.hidden_size,
                                              LoraAdapters::Options{2, 1.0, 0.0}, device()));
  fc->lora()->Add("c_fc", 0, config.intermediate_size, generator_);
  EXPECT_THAT(mlp(x).ToVector<float>(), Pointwise(FloatNear(1e-5F), without));
  FillB(*fc);
  const auto with = mlp(x).ToVector<float>();
  EXPECT_NE(with, without);
  fc->lora()->Merge(fc->weight(), false);
  EXPECT_THAT(mlp(x).ToVector<float>(), Pointwise(FloatNear(2e-4F), with));
}

TEST_P(LoraTest, BadAdaptersAreErrors) {
  EXPECT_EQ(MessageOf([&] {
              LoraAdapters(4, {0, 1.0, 0.0}, device());
            }),
            "LoRA: expected a positive rank, got 0");
  EXPECT_EQ(MessageOf([&] {
              LoraAdapters(4, {1, 1.0, 1.0}, device());
            }),
            "LoRA dropout: expected 0 <= p < 1, got 1");
  const auto linear = Adapted();
  EXPECT_EQ(MessageOf([&] { linear->lora()->Add("middle", 3, 2, generator_); }),
            "LoRA: middle and first adapt the same features");
  EXPECT_EQ(MessageOf([&] { linear->lora()->Unmerge(linear->weight()); }),
            "LoRA: the adapters are not merged, or not with their base kept");
  linear->lora()->Merge(linear->weight(), false);
  EXPECT_EQ(MessageOf([&] { linear->lora()->Merge(linear->weight(), true); }),
            "LoRA: the adapters are merged already");
  EXPECT_EQ(MessageOf([&] { linear->lora()->Unmerge(linear->weight()); }),
            "LoRA: the adapters are not merged, or not with their base kept");
}

}  // namespace
}  // namespace infini_train::nn
