#include "infini_train/autograd/backward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "infini_train/autograd/functions.h"
#include "infini_train/core/device/allocator.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectEqual;
using test::ExpectSameBits;
using test::MakeTensor;
using test::ToDoubles;
using testing::HasSubstr;
using testing::ThrowsMessage;

class BackwardTest : public DeviceTest {
 protected:
  Tensor Floats(const std::vector<double>& values) const {
    return MakeTensor(device(), DataType::kFloat32, {static_cast<std::int64_t>(values.size())},
                      values);
  }
  Tensor Leaf(const std::vector<double>& values) const {
    return Floats(values).set_requires_grad();
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(BackwardTest);

TEST_P(BackwardTest, GradientsAddUpOverSeveralBackwards) {
  const Tensor x = Leaf({1, 2});
  Backward(Sum(x * 3));
  ExpectEqual(x.grad(), {3, 3});
  const Tensor buffer = x.grad();
  Backward(Sum(x * x));
  ExpectEqual(x.grad(), {5, 7});
  // One buffer for the life of a step, so that optimizers may hold it.
  EXPECT_TRUE(x.grad().IsSameAs(buffer));
}

TEST_P(BackwardTest, TheGradientIsNotSharedWithWhoGaveIt) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = x + 0;
  const Tensor grad = Floats({5, 6});
  Backward({&y, 1}, {&grad, 1});
  EXPECT_FALSE(x.grad().SharesStorageWith(grad));
  Backward({&x, 1}, {&grad, 1});
  ExpectEqual(x.grad(), {10, 12});
  ExpectEqual(grad, {5, 6});
}

TEST_P(BackwardTest, BothBranchesOfADiamondCount) {
  const Tensor x = Leaf({2, 3});
  const Tensor shared = x * x;
  const Tensor left = shared * 2;
  const Tensor right = Exp(shared * 0) + shared;
  Backward(Sum(left * right));
  // d/dx 2 x² (1 + x²) = 4 x + 8 x³
  ExpectEqual(x.grad(), {72, 228});
}

TEST_P(BackwardTest, AnUnbalancedDiamondWaitsForAllGradients) {
  const Tensor x = Leaf({1});
  const Tensor shared = x * 1;
  Tensor deep = shared;
  for (int i = 0; i < 50; ++i)
    deep = deep * 1;
  int calls = 0;
  RegisterHook(shared, [&](const Tensor& grad) {
    ++calls;
    ExpectEqual(grad, {2});
    return Tensor();
  });
  Backward(Sum(deep + shared));
  EXPECT_EQ(calls, 1);
  ExpectEqual(x.grad(), {2});
}

TEST_P(BackwardTest, SeveralRoots) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = x * 2;
  const std::vector<Tensor> roots = {y, Sum(y * y), x};
  const std::vector<Tensor> grads = {Floats({1, 10}), Full({}, 1, DataType::kFloat32, device()),
                                     Floats({100, 100})};
  Backward(roots, grads);
  ExpectEqual(x.grad(), {2 + 8 + 100, 20 + 16 + 100});
}

TEST_P(BackwardTest, WhatBackwardRefuses) {
  const Tensor x = Leaf({1, 2});
  EXPECT_THAT([&] { Backward(x * 2); }, ThrowsMessage<Error>(HasSubstr("[2]")));
  EXPECT_THROW(Backward(Sum(Floats({1}))), Error);
  const Tensor y = x * 2;
  const Tensor wrong_shape = Floats({1});
  EXPECT_THROW(Backward({&y, 1}, {&wrong_shape, 1}), Error);
  const Tensor wrong_type = Zeros({2}, DataType::kFloat64, device());
  EXPECT_THROW(Backward({&y, 1}, {&wrong_type, 1}), Error);
  EXPECT_THROW(Backward({&y, 1}, {}), Error);
  EXPECT_FALSE(x.grad().defined());
}

TEST_P(BackwardTest, ASecondBackwardNeedsTheGraphRetained) {
  const Tensor x = Leaf({1, 2});
  const Tensor loss = Sum(Exp(x));
  Backward(loss, true);
  const std::vector<double> once = ToDoubles(x.grad());
  Backward(loss);
  ExpectEqual(x.grad(), {2 * once[0], 2 * once[1]});
  EXPECT_THAT([&] { Backward(loss); }, ThrowsMessage<Error>(HasSubstr("retain_graph")));
}

TEST_P(BackwardTest, UnusedOutputsAndInputs) {
  const Tensor x = Leaf({3, 1, 2});
  const Tensor unused = Leaf({1, 1, 1});
  const Tensor dead_end = x * unused;
  const auto [values, positions] = Sort(x);
  Backward(Sum(Slice(values, 0, 1)));
  ExpectEqual(x.grad(), {1, 0, 1});
  EXPECT_FALSE(unused.grad().defined());
}

TEST_P(BackwardTest, DetachedTensorsStopTheGradient) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = x * 3;
  const Tensor constant = y.Detach();
  EXPECT_TRUE(constant.SharesStorageWith(y));
  EXPECT_FALSE(constant.requires_grad());
  Backward(Sum(constant * y));
  ExpectEqual(x.grad(), {9, 18});
}

TEST_P(BackwardTest, LeafHooksSeeTheSumOnce) {
  const Tensor x = Leaf({1, 2});
  std::vector<std::vector<double>> seen;
  const int id = RegisterHook(x, [&](const Tensor& grad) {
    seen.push_back(ToDoubles(grad));
    return Tensor();
  });
  Backward(Sum(x * 2) + Sum(x * 3));
  EXPECT_EQ(seen, (std::vector<std::vector<double>>{{5, 5}}));
  Backward(Sum(x));
  EXPECT_EQ(seen.size(), 2u);
  ExpectEqual(x.grad(), {6, 6});
  RemoveHook(x, id);
  Backward(Sum(x));
  EXPECT_EQ(seen.size(), 2u);
}

TEST_P(BackwardTest, FinalGradHooksSeeWhatABackwardAddedUp) {
  const Tensor x = Leaf({1, 2});
  const Tensor z = Leaf({3, 4});
  std::vector<std::vector<double>> seen;
  std::vector<bool> z_was_done;
  const auto watch = [&](const Tensor& leaf) {
    seen.push_back(ToDoubles(leaf.grad()));
    z_was_done.push_back(z.grad().defined());
  };
  const int id = RegisterFinalGradHook(x, watch);
  const Tensor early = z * 7;
  Backward(Sum(early + x * 2) + Sum(x * 3));
  EXPECT_EQ(seen, (std::vector<std::vector<double>>{{5, 5}}));
  EXPECT_FALSE(z_was_done.front()) << "the backward goes on after a gradient is final";
  Backward(Sum(x));
  EXPECT_EQ(seen.back(), (std::vector<double>{6, 6}));
  const Tensor ones = Leaf({1, 1}).Detach();
  Backward({&x, 1}, {&ones, 1});
  EXPECT_EQ(seen.size(), 3u);
  RemoveHook(x, id);
  Backward(Sum(x));
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_THROW(RegisterFinalGradHook(early, watch), Error);
}

TEST_P(BackwardTest, ALeafThatIsAnOutputWaitsForTheOtherOutputs) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = x * 3;
  const Tensor ones = Leaf({1, 1}).Detach();
  const Tensor outputs[] = {x, y};
  const Tensor gradients[] = {ones, ones};
  std::vector<std::vector<double>> final, arriving;
  RegisterFinalGradHook(x, [&](const Tensor& leaf) { final.push_back(ToDoubles(leaf.grad())); });
  Backward(outputs, gradients, /*retain_graph=*/true);
  EXPECT_EQ(final, (std::vector<std::vector<double>>{{4, 4}}));
  RegisterHook(x, [&](const Tensor& grad) {
    arriving.push_back(ToDoubles(grad));
    return Tensor();
  });
  Backward(outputs, gradients);
  EXPECT_EQ(arriving, (std::vector<std::vector<double>>{{4, 4}})) << "hooks see the sum";
  EXPECT_EQ(final.back(), (std::vector<double>{8, 8}));
  ExpectEqual(ones, {1, 1});
}

TEST_P(BackwardTest, HooksReplaceGradientsInOrder) {
  const Tensor x = Leaf({1, 2});
  RegisterHook(x, [](const Tensor& grad) { return grad * 10; });
  RegisterHook(x, [](const Tensor& grad) { return grad + 1; });
  Backward(Sum(x * 2));
  ExpectEqual(x.grad(), {21, 21});
}

TEST_P(BackwardTest, HooksInsideTheGraph) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = x * x;
  std::vector<double> seen;
  RegisterHook(y, [&](const Tensor& grad) {
    seen = ToDoubles(grad);
    return grad * 100;
  });
  const int removed = RegisterHook(y, [](const Tensor&) -> Tensor { throw Error("removed"); });
  RemoveHook(y, removed);
  Backward(Sum(y * 3 + y));
  EXPECT_EQ(seen, (std::vector<double>{4, 4}));
  ExpectEqual(x.grad(), {800, 1600});
}

TEST_P(BackwardTest, AHookMayRemoveItself) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = x * 2;
  for (const Tensor& watched : {x, y}) {
    auto id = std::make_shared<int>();
    *id = RegisterHook(watched, [watched, id](const Tensor& grad) {
      RemoveHook(watched, *id);
      return grad * 10;
    });
  }
  const Tensor loss = Sum(y);
  Backward(loss, true);
  ExpectEqual(x.grad(), {200, 200});
  Backward(loss);
  ExpectEqual(x.grad(), {202, 202});
}

TEST_P(BackwardTest, HooksRunForALeafThatIsTheRoot) {
  const Tensor x = Leaf({4});
  RegisterHook(x, [](const Tensor& grad) { return grad * 2; });
  Backward(x);
  ExpectEqual(x.grad(), {2});
}

TEST_P(BackwardTest, AHookMayKeepItsGradient) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = x * 2;
  Tensor kept;
  RegisterHook(y, [&](const Tensor& grad) {
    kept = grad;
    return Tensor();
  });
  // Backward of the product and of the exponential would write the gradient they get.
  Backward(Sum(Exp(y * 0) * y));
  ExpectEqual(kept, {1, 1});
}

TEST_P(BackwardTest, AHookMustGiveAGradientThatFits) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = x * 2;
  RegisterHook(y, [&](const Tensor&) { return Floats({1}); });
  EXPECT_THROW(Backward(Sum(y)), Error);
  EXPECT_THROW(RegisterHook(Floats({1}), [](const Tensor& grad) { return grad; }), Error);
}

TEST_P(BackwardTest, RetainGradKeepsGradientsOfInnerTensors) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = x * 3;
  const Tensor z = y * y;
  RetainGrad(y);
  RetainGrad(x);
  const Tensor loss = Sum(z);
  Backward(loss, true);
  ExpectEqual(y.grad(), {6, 12});
  EXPECT_FALSE(z.grad().defined());
  ExpectEqual(x.grad(), {18, 36});
  Backward(loss);
  ExpectEqual(y.grad(), {12, 24});
}

TEST_P(BackwardTest, RetainGradDoesNotKeepATensorAlive) {
  const Tensor x = Leaf({1, 2});
  Tensor y = x * 3;
  RetainGrad(y);
  const WeakTensor weak(y);
  const Tensor loss = Sum(y * 2);
  y = Tensor();
  EXPECT_FALSE(weak.Lock().defined());
  Backward(loss);
  ExpectEqual(x.grad(), {6, 6});
}

TEST_P(BackwardTest, ADeepGraphNeedsNoDeepStack) {
  constexpr int kDepth = 100000;
  const Tensor x = Leaf({1});
  {
    Tensor y = x;
    for (int i = 0; i < kDepth; ++i)
      y = y + 1;
    Backward(Sum(y));
    ExpectEqual(x.grad(), {1});
  }
  Tensor y = x;
  for (int i = 0; i < kDepth; ++i)
    y = y + 1;
  // Freed here, without a backward.
  y = Tensor();
}

TEST_P(BackwardTest, TheGraphIsFreedWithItsTensors) {
  const std::size_t before = allocator::Stats(device()).allocated;
  {
    const Tensor x = Zeros({1000}, DataType::kFloat32, device());
    x.set_requires_grad();
    const Tensor loss = Sum(Exp(x) * x);
    Backward(loss, true);
    EXPECT_GT(allocator::Stats(device()).allocated, before);
  }
  EXPECT_EQ(allocator::Stats(device()).allocated, before);
}

class BackwardMemoryTest : public BackwardTest {
 protected:
  static constexpr std::int64_t kElements = 1 << 18;
  static constexpr std::size_t kBytes = kElements * sizeof(float);
  static constexpr int kDepth = 12;

  /// Bytes beyond those of x that are alive when backward arrives at x, with the graph still there.
  std::size_t BytesAtTheEnd(bool retain_graph) const {
    const Tensor x = Zeros({kElements}, DataType::kFloat32, device());
    x.set_requires_grad();
    const std::size_t before = allocator::Stats(device()).allocated;
    Tensor y = x;
    for (int i = 0; i < kDepth; ++i)
      y = Tanh(y);
    const Tensor loss = Sum(y);
    y = Tensor();
    std::size_t at_the_end = 0;
    RegisterHook(x, [&](const Tensor&) {
      at_the_end = allocator::Stats(device()).allocated - before;
      return Tensor();
    });
    Backward(loss, retain_graph);
    return at_the_end;
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(BackwardMemoryTest);

TEST_P(BackwardMemoryTest, ActivationsAreFreedDuringBackward) {
  EXPECT_LT(BytesAtTheEnd(false), 2 * kBytes);
  EXPECT_GE(BytesAtTheEnd(true), kDepth * kBytes);
}

TEST_P(BackwardMemoryTest, ElementwiseBackwardReusesTheGradientsMemory) {
  const Tensor x = Zeros({kElements}, DataType::kFloat32, device());
  x.set_requires_grad();
  Tensor y = x;
  for (int i = 0; i < kDepth; ++i)
    y = Tanh(y * 0.5);
  const Tensor grad = Zeros({kElements}, DataType::kFloat32, device());
  const Tensor loss = Sum(y);
  y = Tensor();
  const std::size_t before = allocator::Stats(device()).allocated;
  allocator::ResetPeakStats(device());
  Backward(loss);
  // The first gradient (a view of one number) becomes memory once; then it is passed on.
  EXPECT_LT(allocator::Stats(device()).peak_allocated, before + 2 * kBytes);
}

TEST_P(BackwardTest, TwoRunsGiveTheSameBits) {
  const auto gradient = [&] {
    ManualSeed(5);
    const Tensor x = Normal({64, 33}, 0, 1, DataType::kFloat32, device());
    x.set_requires_grad();
    Backward(Mean(Softmax(Dropout(Gelu(x) * x, 0.2), 1) * x));
    return x.grad();
  };
  ExpectSameBits(gradient(), gradient());
}

}  // namespace
}  // namespace infini_train
