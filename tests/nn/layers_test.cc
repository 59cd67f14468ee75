#include "infini_train/nn/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"
#include "tests/core/child_process.h"

namespace infini_train::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

std::vector<std::string> Names(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors)
    names.push_back(name);
  return names;
}

class LayersTest : public DeviceTest {
 protected:
  template <typename T>
  static Tensor Input(const std::vector<T>& values, const Dims& shape) {
    return To(Tensor::FromVector(values, shape), device());
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(LayersTest);

void Set(const Module& module, const std::string& name, const std::vector<float>& values) {
  for (const auto& [own, tensor] : module.NamedParameters()) {
    if (own != name) continue;
    const NoGrad no_grad;
    CopyInPlace(tensor, Tensor::FromVector(values, tensor.shape()));
    return;
  }
  FAIL() << "no parameter " << name;
}

TEST_P(LayersTest, LinearMultipliesByTheTransposedWeightAndAddsTheBias) {
  Linear linear(3, 2, true, {device()});
  EXPECT_EQ(linear.weight().shape(), Dims({2, 3}));
  EXPECT_EQ(linear.bias().shape(), Dims({2}));
  Set(linear, "weight", {1, 2, 3, 4, 5, 6});
  Set(linear, "bias", {10, 20});
  const Tensor y = linear(Input<float>({1, 0, -1, 2, 2, 2}, {1, 2, 3}));
  EXPECT_EQ(y.shape(), Dims({1, 2, 2}));
  EXPECT_THAT(y.ToVector<float>(), ElementsAre(8, 18, 22, 50));
}

TEST(Linear, WithoutABiasHasNone) {
  const Linear linear(3, 2, false);
  EXPECT_FALSE(linear.bias().defined());
  EXPECT_THAT(Names(linear.NamedParameters()), ElementsAre("weight"));
}

TEST(Linear, RefusesOtherWidths) {
  Linear linear(3, 2, true);
  EXPECT_THROW(linear(Ones({1, 4})), Error);
}

TEST_P(LayersTest, ParametersHaveTheTypeAndPlaceThatWereAsked) {
  const TensorOptions options{device(), DataType::kBFloat16};
  const Linear linear(2, 2, true, options);
  const Embedding embedding(2, 2, options);
  const LayerNorm layer_norm(2, 1e-5, true, options);
  const RmsNorm rms_norm(2, 1e-5, options);
  const Module* const modules[] = {&linear, &embedding, &layer_norm, &rms_norm};
  for (const Module* module : modules) {
    for (const Tensor& parameter : module->Parameters()) {
      EXPECT_EQ(parameter.dtype(), DataType::kBFloat16);
      EXPECT_EQ(parameter.device(), device());
    }
  }
}

TEST_P(LayersTest, EmbeddingTakesRows) {
  Embedding embedding(3, 2, {device()});
  Set(embedding, "weight", {0, 1, 10, 11, 20, 21});
  const Tensor y = embedding(Input<std::int64_t>({2, 0, 2}, {3, 1}));
  EXPECT_EQ(y.shape(), Dims({3, 1, 2}));
  EXPECT_THAT(y.ToVector<float>(), ElementsAre(20, 21, 0, 1, 20, 21));
}

TEST(Embedding, RefusesIdsOutOfRange) {
  Embedding embedding(3, 2);
  EXPECT_ERROR(embedding(Tensor::FromVector<std::int64_t>({1, 3}, {2})), "3");
  EXPECT_ERROR(embedding(Tensor::FromVector<std::int64_t>({-1}, {1})), "-1");
}

TEST_P(LayersTest, LayerNormNormalisesScalesAndShifts) {
  LayerNorm norm(4, 1e-5, true, {device()});
  Set(norm, "weight", {1, 1, 2, 2});
  Set(norm, "bias", {0, 1, 0, 1});
  const float unit = 1 / std::sqrt(1.25f + 1e-5f);
  EXPECT_THAT(norm(Input<float>({0, 1, 2, 3}, {1, 4})).ToVector<float>(),
              Pointwise(FloatNear(1e-5f), {-1.5f * unit, -0.5f * unit + 1, unit, 3 * unit + 1}));
  EXPECT_THAT(Names(LayerNorm(4, 1e-5, false).NamedParameters()), ElementsAre("weight"));
}

TEST_P(LayersTest, RmsNormDividesByTheRootMeanSquare) {
  RmsNorm norm(2, 0.5, {device()});
  Set(norm, "weight", {1, 10});
  const float unit = 1 / std::sqrt(12.5f + 0.5f);
  EXPECT_THAT(norm(Input<float>({3, 4}, {2})).ToVector<float>(),
              Pointwise(FloatNear(1e-5f), {3 * unit, 40 * unit}));
}

TEST_P(LayersTest, DropoutZeroesAndScalesInTrainingOnly) {
  Dropout dropout(0.25);
  const Tensor x = Ones({40'000}, DataType::kFloat32, device());
  ManualSeed(7);
  const std::vector<float> y = dropout(x).ToVector<float>();
  const auto zeros = std::count(y.begin(), y.end(), 0.0f);
  EXPECT_EQ(zeros + std::count(y.begin(), y.end(), 1.0f / 0.75f), 40'000);
  // Five standard deviations of a binomial count.
  EXPECT_NEAR(static_cast<double>(zeros), 10'000.0, 5 * std::sqrt(40'000 * 0.25 * 0.75));
  dropout.Train(false);
  EXPECT_TRUE(dropout(x).IsSameAs(x));
  dropout.Train();
  dropout.set_p(0.0);
  EXPECT_TRUE(dropout(x).IsSameAs(x));
}

TEST(Dropout, RefusesOtherProbabilities) {
  for (const double p : {-0.1, 1.0, 1.5, std::nan("")}) {
    EXPECT_ERROR(Dropout{p}, "expected 0 <= p < 1");
  }
}

}  // namespace
}  // namespace infini_train::nn
