#include <gtest/gtest.h>

#include <optional>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/device/allocator.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectEqual;
using test::ExpectSameBits;

/// A block with dropout, parameters and an attention that draws random numbers.
struct Block {
  explicit Block(Device device) {
    weight = Normal({24, 8}, 0, 0.3, DataType::kFloat32, device).set_requires_grad();
    bias = Zeros({24}, DataType::kFloat32, device).set_requires_grad();
    scale = Ones({8}, DataType::kFloat32, device).set_requires_grad();
  }

  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const {
    const Tensor& x = inputs[0];
    const Tensor qkv = Linear(RmsNorm(x, scale), weight, bias);
    const Tensor mixed = PackedAttention(qkv, 2, 2, {.scale = 0, .dropout_p = 0.3});
    const Tensor y = x + Dropout(Gelu(mixed), 0.2);
    return {y, Mean(y * y, {1})};
  }

  Tensor weight, bias, scale;
};

class CheckpointTest : public DeviceTest {
 protected:
  struct Result {
    std::vector<Tensor> outputs;
    std::vector<Tensor> grads;
    Generator::State random;
  };

  Result Run(bool checkpoint, std::optional<DataType> autocast_dtype) const {
    ManualSeed(21);
    const Block block(device());
    const Tensor x = Normal({2, 4, 8}, 0, 1, DataType::kFloat32, device());
    x.set_requires_grad();
    const Autocast autocast(autocast_dtype);
    std::vector<Tensor> outputs = {x};
    for (int layer = 0; layer < 2; ++layer) {
      const std::vector<Tensor> inputs = {outputs[0] * 1.5};
      outputs = checkpoint ? Checkpoint(block, inputs) : block(inputs);
    }
    Backward(Sum(Square(outputs[0])) + Sum(outputs[1]) + Sum(block.bias * 3));
    return {outputs,
            {x.grad(), block.weight.grad(), block.bias.grad(), block.scale.grad()},
            DefaultGenerator().state()};
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(CheckpointTest);

TEST_P(CheckpointTest, IsThePlainRunBitForBit) {
  for (const std::optional<DataType> autocast_dtype :
       {std::optional<DataType>(), std::optional(DataType::kBFloat16)}) {
    const Result plain = Run(false, autocast_dtype);
    const Result checkpointed = Run(true, autocast_dtype);
    ASSERT_EQ(plain.outputs.size(), checkpointed.outputs.size());
    for (std::size_t i = 0; i < plain.outputs.size(); ++i)
      ExpectSameBits(plain.outputs[i], checkpointed.outputs[i]);
    for (std::size_t i = 0; i < plain.grads.size(); ++i)
      ExpectSameBits(plain.grads[i], checkpointed.grads[i]);
    EXPECT_EQ(plain.random, checkpointed.random);
  }
}

TEST_P(CheckpointTest, RunsTheFunctionOnceMoreInBackward) {
  const Tensor x = Ones({2}, DataType::kFloat32, device());
  x.set_requires_grad();
  int runs = 0;
  const auto function = [&](const std::vector<Tensor>& inputs) {
    ++runs;
    return std::vector<Tensor>{Exp(inputs[0]) * inputs[0]};
  };
  {
    const NoGrad no_grad;
    EXPECT_FALSE(Checkpoint(function, {x})[0].requires_grad());
    EXPECT_EQ(runs, 1);
  }
  const Tensor y = Checkpoint(function, {x})[0];
  EXPECT_EQ(runs, 2);
  Backward(Sum(y), true);
  EXPECT_EQ(runs, 3);
  Backward(Sum(y));
  EXPECT_EQ(runs, 4);
}

TEST_P(CheckpointTest, UnusedOutputsAndConstantInputs) {
  const Tensor x = test::MakeTensor(device(), DataType::kFloat32, {2}, {1, 2});
  const Tensor constant = test::MakeTensor(device(), DataType::kFloat32, {2}, {3, 4});
  const Tensor parameter = test::MakeTensor(device(), DataType::kFloat32, {2}, {5, 6});
  x.set_requires_grad();
  parameter.set_requires_grad();
  const auto function = [&](const std::vector<Tensor>& inputs) {
    return std::vector<Tensor>{inputs[0] * inputs[1] * parameter, inputs[0] * 100};
  };
  Backward(Sum(Checkpoint(function, {x, constant})[0]));
  ExpectEqual(x.grad(), {15, 24});
  ExpectEqual(parameter.grad(), {3, 8});
  EXPECT_FALSE(constant.grad().defined());
  // No input requires a gradient, but the parameter does.
  Backward(Sum(Checkpoint(function, {constant, constant})[0]));
  ExpectEqual(parameter.grad(), {3 + 9, 8 + 16});
}

TEST_P(CheckpointTest, Nests) {
  const Tensor x = test::MakeTensor(device(), DataType::kFloat32, {2}, {1, 2});
  x.set_requires_grad();
  const auto inner = [](const std::vector<Tensor>& inputs) {
    return std::vector<Tensor>{inputs[0] * inputs[0]};
  };
  const auto outer = [&](const std::vector<Tensor>& inputs) {
    return std::vector<Tensor>{Checkpoint(inner, {inputs[0] * 2})[0] + inputs[0]};
  };
  Backward(Sum(Checkpoint(outer, {x})[0]));
  ExpectEqual(x.grad(), {9, 17});
}

TEST_P(CheckpointTest, KeepsOnlyInputsAndOutputs) {
  constexpr std::int64_t kElements = 1 << 18;
  const Tensor x = Zeros({kElements}, DataType::kFloat32, device());
  x.set_requires_grad();
  const auto function = [](const std::vector<Tensor>& inputs) {
    Tensor y = inputs[0];
    for (int i = 0; i < 10; ++i)
      y = Tanh(y);
    return std::vector<Tensor>{y};
  };
  const std::size_t before = allocator::Stats(device()).allocated;
  const std::vector<Tensor> outputs = Checkpoint(function, {x});
  EXPECT_EQ(allocator::Stats(device()).allocated, before + kElements * sizeof(float));
}

}  // namespace
}  // namespace infini_train
