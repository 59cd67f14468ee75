// Forward, backward and updates captured into a graph: the same bits as without one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/graph.h"
#include "tests/common/device_test.h"
#include "tests/common/errors.h"

namespace infini_train {
namespace {

using test::ExpectSameBits;

/// A network that drops elements and attention weights, with its inputs and its update.
class Network {
 public:
  Network(Device device, bool checkpoint) : checkpoint_(checkpoint) {
    ManualSeed(8);
    weight_ = Normal({24, 8}, 0, 0.3, DataType::kFloat32, device).set_requires_grad();
    scale_ = Ones({8}, DataType::kFloat32, device).set_requires_grad();
    input = Normal({2, 4, 8}, 0, 1, DataType::kFloat32, device);
  }

  /// One training step; returns its loss.
  Tensor Step() const {
    weight_.set_grad({});
    scale_.set_grad({});
    std::vector<Tensor> hidden = {input};
    const auto block = [this](const std::vector<Tensor>& x) { return Block(x); };
    for (int layer = 0; layer < 2; ++layer)
      hidden = checkpoint_ ? Checkpoint(block, hidden) : block(hidden);
    Tensor loss = Mean(Square(hidden[0]));
    Backward(loss);
    const NoGrad no_grad;
    AddInPlace(weight_, weight_.grad(), -0.5);
    AddInPlace(scale_, scale_.grad(), -0.5);
    return loss.Detach();
  }

  std::vector<Tensor> State() const { return {weight_, scale_, weight_.grad(), scale_.grad()}; }

  Tensor input;

 private:
  std::vector<Tensor> Block(const std::vector<Tensor>& x) const {
    const Tensor qkv = Linear(RmsNorm(x[0], scale_), weight_);
    const Tensor mixed = PackedAttention(qkv, 2, 2, {.scale = 0, .dropout_p = 0.3});
    return {x[0] + Dropout(Gelu(mixed), 0.2)};
  }

  bool checkpoint_;
  Tensor weight_, scale_;
};

class GraphTest : public DeviceTest {
 protected:
  void SetUp() override {
    if (!DeviceGraph::IsSupported(device())) GTEST_SKIP() << "the device has no graphs";
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(GraphTest);

TEST_P(GraphTest, StepsAreThoseWithoutItBitForBit) {
  for (const bool checkpoint : {false, true}) {
    const Network eager(device(), checkpoint);
    const Network captured(device(), checkpoint);
    Generator::State eager_random = DefaultGenerator().state();
    Generator::State captured_random = eager_random;
    std::optional<DeviceGraph> graph;
    Tensor captured_loss;
    for (int step = 0; step < 6; ++step) {
      DefaultGenerator().set_state(eager_random);
      const Tensor eager_loss = eager.Step();
      if (step == 3) Uniform({100}, 0, 1, DataType::kFloat32, device());
      eager_random = DefaultGenerator().state();

      DefaultGenerator().set_state(captured_random);
      if (step == 0) {
        captured_loss = captured.Step();
      } else {
        if (!graph) graph.emplace(device(), [&] { captured_loss = captured.Step(); });
        graph->Launch();
      }
      if (step == 3) Uniform({100}, 0, 1, DataType::kFloat32, device());
      captured_random = DefaultGenerator().state();

      ExpectSameBits(captured_loss, eager_loss);
      for (std::size_t i = 0; i < eager.State().size(); ++i)
        ExpectSameBits(captured.State()[i], eager.State()[i]);
      EXPECT_EQ(captured_random, eager_random) << "step " << step;
    }
  }
}

TEST_P(GraphTest, EveryRandomOpDrawsOn) {
  const std::vector<Tensor> fresh = [&] {
    ManualSeed(5);
    std::vector<Tensor> results;
    for (int i = 0; i < 3; ++i) {
      results.push_back(Uniform({33}, -1, 1, DataType::kFloat32, device()));
      results.push_back(Normal({34}, 0, 1, DataType::kFloat64, device()));
      results.push_back(RandomInt({35}, 0, 1 << 20, DataType::kInt64, device()));
      results.push_back(RandomInt({36}, INT64_MIN, INT64_MAX, DataType::kInt64, device()));
      results.push_back(Dropout(Ones({37}, DataType::kBFloat16, device()), 0.5));
    }
    return results;
  }();
  ManualSeed(5);
  Generator own(77);
  std::vector<Tensor> drawn(5);
  Tensor from_own;
  DeviceGraph graph(device(), [&] {
    drawn[0] = Uniform({33}, -1, 1, DataType::kFloat32, device());
    drawn[1] = Normal({34}, 0, 1, DataType::kFloat64, device());
    drawn[2] = RandomInt({35}, 0, 1 << 20, DataType::kInt64, device());
    drawn[3] = RandomInt({36}, INT64_MIN, INT64_MAX, DataType::kInt64, device());
    drawn[4] = Dropout(Ones({37}, DataType::kBFloat16, device()), 0.5);
    from_own = Uniform({38}, 0, 1, DataType::kFloat32, device(), &own);
  });
  Generator own_again(77);
  const Tensor expected_own = Uniform({38}, 0, 1, DataType::kFloat32, device(), &own_again);
  for (std::size_t i = 0; i < 3; ++i) {
    graph.Launch();
    for (std::size_t k = 0; k < drawn.size(); ++k)
      ExpectSameBits(drawn[k], fresh[i * drawn.size() + k]);
    ExpectSameBits(from_own, expected_own);
  }
  EXPECT_EQ(DefaultGenerator().state(), (Generator::State{.seed = 5, .offset = 15}));
}

TEST_P(GraphTest, AGeneratorThatTheBodySetsIsSetByEachLaunch) {
  ManualSeed(5);
  const Generator::State start = DefaultGenerator().state();
  const Tensor expected = Uniform({33}, 0, 1, DataType::kFloat32, device());
  Tensor drawn;
  DeviceGraph graph(device(), [&] {
    DefaultGenerator().set_state(start);
    drawn = Uniform({33}, 0, 1, DataType::kFloat32, device());
  });
  for (int i = 0; i < 2; ++i) {
    DefaultGenerator().Next();
    graph.Launch();
    ExpectSameBits(drawn, expected);
    EXPECT_EQ(DefaultGenerator().state(), (Generator::State{.seed = 5, .offset = 1}));
  }
}

TEST_P(GraphTest, BackwardMayComeLater) {
  // The forward is captured, with what it drew; its backward is not.
  const Tensor x = Ones({1000}, DataType::kFloat32, device()).set_requires_grad();
  Tensor y;
  DeviceGraph graph(device(), [&] { y = Dropout(x, 0.5); });
  graph.Launch();
  graph.Launch();
  Backward(std::vector<Tensor>{y}, std::vector<Tensor>{Ones({1000}, DataType::kFloat32, device())});
  ExpectSameBits(x.grad(), y.Detach());
}

TEST_P(GraphTest, RandomNumbersOfTheHostAreRefused) {
  const std::string message =
      test::MessageOf([&] { DeviceGraph graph(device(), [] { Uniform({3}); }); });
  EXPECT_THAT(message, ::testing::HasSubstr("random numbers on the CPU are not part of a graph"));
  EXPECT_EQ(Uniform({3}).numel(), 3);
}

}  // namespace
}  // namespace infini_train
