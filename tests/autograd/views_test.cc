#include <gtest/gtest.h>

#include <limits>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/core/autograd_meta.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"
#include "tests/common/gradcheck.h"

namespace infini_train {
namespace {

using test::CheckGradients;
using test::ExpectEqual;
using test::GradCheck;
using test::Inputs;

class ViewTest : public DeviceTest {
 protected:
  Tensor Counting(const Dims& shape, DataType dtype = DataType::kFloat32) const {
    return Reshape(Arange(0, Numel(shape), 1, dtype, device()), shape);
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(ViewTest);

TEST_P(ViewTest, Gradients) {
  const GradCheck kChecks[] = {
      {.name = "Reshape",
       .function =
           [](const Inputs& x) {
             return Reshape(x[0], {4, -1});
           },
       .inputs = {{{2, 3, 4}}}},
      {.name = "Reshape of nothing",
       .function =
           [](const Inputs& x) {
             return Reshape(x[0], {5, 0});
           },
       .inputs = {{{2, 0, 4}}}},
      {.name = "Flatten",
       .function = [](const Inputs& x) { return Flatten(x[0], 1, -2); },
       .inputs = {{{2, 3, 2, 2}}}},
      {.name = "Flatten of a number",
       .function = [](const Inputs& x) { return Flatten(x[0]); },
       .inputs = {{{}}}},
      {.name = "Transpose",
       .function = [](const Inputs& x) { return Transpose(x[0], 0, -1); },
       .inputs = {{{2, 3, 4}}}},
      {.name = "Permute",
       .function =
           [](const Inputs& x) {
             return Permute(x[0], {2, 0, -2});
           },
       .inputs = {{{2, 3, 4}}}},
      {.name = "Squeeze",
       .function = [](const Inputs& x) { return Squeeze(x[0], 1); },
       .inputs = {{{3, 1, 2}}}},
      {.name = "Unsqueeze",
       .function = [](const Inputs& x) { return Unsqueeze(x[0], -2); },
       .inputs = {{{3, 2}}}},
      {.name = "Expand",
       .function =
           [](const Inputs& x) {
             return Expand(x[0], {2, 3, -1, 4});
           },
       .inputs = {{{3, 2, 1}}}},
      {.name = "Expand to nothing",
       .function =
           [](const Inputs& x) {
             return Expand(x[0], {0, 3});
           },
       .inputs = {{{1, 3}}}},
      {.name = "Slice",
       .function = [](const Inputs& x) { return Slice(x[0], 1, 1, -1); },
       .inputs = {{{2, 5, 3}}}},
      {.name = "Slice with a step",
       .function = [](const Inputs& x) { return Slice(x[0], -1, 1, 6, 2); },
       .inputs = {{{2, 7}}}},
      {.name = "Slice of everything",
       .function = [](const Inputs& x) { return Slice(x[0], 0, 0); },
       .inputs = {{{3, 2}}}},
      {.name = "Slice of nothing",
       .function = [](const Inputs& x) { return Slice(x[0], 0, 2, 1); },
       .inputs = {{{3, 2}}}},
      {.name = "Select",
       .function = [](const Inputs& x) { return Select(x[0], 1, -2); },
       .inputs = {{{3, 4, 2}}}},
      {.name = "Split",
       .function =
           [](const Inputs& x) {
             return Split(x[0], {1, 0, 3, 2}, 1);
           },
       .inputs = {{{2, 6}}}},
      {.name = "Concat",
       .function =
           [](const Inputs& x) {
             return Concat({x[0], x[1], x[0]}, 1);
           },
       .inputs = {{{2, 3}}, {{2, 1}}}},
      {.name = "Concat with an empty one",
       .function =
           [](const Inputs& x) {
             return Concat({x[0], x[1]}, -1);
           },
       .inputs = {{{2, 0}}, {{2, 3}}}},
      {.name = "Stack",
       .function =
           [](const Inputs& x) {
             return Stack({x[0], x[1]}, -1);
           },
       .inputs = {{{2, 3}}, {{2, 3}}}},
      {.name = "Clone",
       .function = [](const Inputs& x) { return Clone(x[0]); },
       .inputs = {{{2, 3}}}},
      {.name = "Contiguous",
       .function = [](const Inputs& x) { return Contiguous(Transpose(x[0], 0, 1)); },
       .inputs = {{{2, 3}}}},
  };
  for (const GradCheck& check : kChecks)
    CheckGradients(device(), check);
}

TEST_P(ViewTest, GradientsThroughAChain) {
  CheckGradients(device(), {.name = "chain",
                            .function =
                                [](const Inputs& x) {
                                  const Tensor expanded = Expand(x[0], {4, 2, 3});
                                  return Reshape(Transpose(Slice(expanded, 0, 1), 0, 2), {-1});
                                },
                            .inputs = {{{1, 2, 3}}}});
}

TEST_P(ViewTest, ValuesAndSharing) {
  const Tensor x = Counting({2, 3});
  const auto expect_view = [&](const Tensor& view, const Dims& shape,
                               const std::vector<double>& values) {
    EXPECT_TRUE(view.SharesStorageWith(x));
    EXPECT_EQ(view.shape(), shape);
    ExpectEqual(view, values);
  };
  expect_view(Reshape(x, {3, -1}), {3, 2}, {0, 1, 2, 3, 4, 5});
  expect_view(Flatten(x), {6}, {0, 1, 2, 3, 4, 5});
  expect_view(Transpose(x, 0, 1), {3, 2}, {0, 3, 1, 4, 2, 5});
  expect_view(Permute(x, {1, 0}), {3, 2}, {0, 3, 1, 4, 2, 5});
  expect_view(Unsqueeze(x, 1), {2, 1, 3}, {0, 1, 2, 3, 4, 5});
  expect_view(Unsqueeze(x, -1), {2, 3, 1}, {0, 1, 2, 3, 4, 5});
  expect_view(Squeeze(Unsqueeze(x, 0), 0), {2, 3}, {0, 1, 2, 3, 4, 5});
  expect_view(Expand(Slice(x, 0, 0, 1), {2, -1}), {2, 3}, {0, 1, 2, 0, 1, 2});
  expect_view(Slice(x, 1, -2), {2, 2}, {1, 2, 4, 5});
  expect_view(Slice(x, 1, 0, 100, 2), {2, 2}, {0, 2, 3, 5});
  expect_view(Slice(x, 1, -100, 1), {2, 1}, {0, 3});
  expect_view(Slice(x, 1, 5, 9), {2, 0}, {});
  expect_view(Select(x, 0, 1), {3}, {3, 4, 5});
  expect_view(Select(x, -1, -1), {2}, {2, 5});
  expect_view(Split(x, {1, 2}, 1)[1], {2, 2}, {1, 2, 4, 5});
  EXPECT_FALSE(Reshape(Transpose(x, 0, 1), {6}).SharesStorageWith(x));
  EXPECT_TRUE(Reshape(x, {2, 3}).IsSameAs(x));
  EXPECT_TRUE(Contiguous(x).IsSameAs(x));
  EXPECT_FALSE(Clone(x).SharesStorageWith(x));
}

TEST_P(ViewTest, ASliceMayHaveAHugeStep) {
  const Tensor x = Counting({5});
  ExpectEqual(Slice(x, 0, 1, 5, std::numeric_limits<std::int64_t>::max()), {1});
}

TEST_P(ViewTest, ReshapeOfStridedTensorsIsAViewWhereItCanBe) {
  const Tensor x = Counting({4, 6});
  const Tensor slice = Slice(x, 1, 0, 4);
  EXPECT_TRUE(Reshape(slice, {2, 2, 2, 1, 2}).SharesStorageWith(x));
  EXPECT_FALSE(Reshape(slice, {16}).SharesStorageWith(x));
  ExpectEqual(Reshape(slice, {2, 8}), {0, 1, 2, 3, 6, 7, 8, 9, 12, 13, 14, 15, 18, 19, 20, 21});
}

TEST_P(ViewTest, BadArgumentsAreErrors) {
  const Tensor x = Counting({2, 3});
  EXPECT_THROW(Reshape(x, {4, -1}), Error);
  EXPECT_THROW(Reshape(x, {-1, -1}), Error);
  EXPECT_THROW(Reshape(x, {7}), Error);
  EXPECT_THROW(Reshape(x, {-2, -3}), Error);
  EXPECT_THROW(Flatten(x, 1, 0), Error);
  EXPECT_THROW(Transpose(x, 0, 2), Error);
  EXPECT_THROW(Permute(x, {0}), Error);
  EXPECT_THROW(Permute(x, {0, 0}), Error);
  EXPECT_THROW(Permute(x, {0, 2}), Error);
  EXPECT_THROW(Squeeze(x, 0), Error);
  EXPECT_THROW(Unsqueeze(x, 3), Error);
  EXPECT_THROW(Expand(x, {3}), Error);
  EXPECT_THROW(Expand(x, {4, 3}), Error);
  EXPECT_THROW(Expand(x, {-1, 2, 3}), Error);
  EXPECT_THROW(Slice(x, 2, 0), Error);
  EXPECT_THROW(Slice(x, 0, 0, 1, 0), Error);
  EXPECT_THROW(Slice(x, 0, 0, 1, -1), Error);
  EXPECT_THROW(Select(x, 0, 2), Error);
  EXPECT_THROW(Select(x, 0, -3), Error);
  EXPECT_THROW(Split(x, {1, 1}, 1), Error);
  EXPECT_THROW(Split(x, {-1, 4}, 1), Error);
  EXPECT_THROW(Concat({}, 0), Error);
  EXPECT_THROW(Concat({x, Counting({3, 2})}, 0), Error);
  EXPECT_THROW(Concat({x, Counting({6})}, 0), Error);
  EXPECT_THROW(Stack({}, 0), Error);
  EXPECT_THROW(Stack({x, Counting({2, 2})}, 0), Error);
}

TEST_P(ViewTest, JoiningPromotesAndGradientsReturnToTheInputsTypes) {
  const Tensor a = Full({2}, 1, DataType::kBFloat16, device());
  const Tensor b = Full({2}, 2, DataType::kFloat32, device());
  const Tensor c = Full({1}, 3, DataType::kInt64, device());
  a.set_requires_grad();
  b.set_requires_grad();
  const Tensor y = Concat({a, b, c}, 0);
  EXPECT_EQ(y.dtype(), DataType::kFloat32);
  ExpectEqual(y, {1, 1, 2, 2, 3});
  Backward(Sum(y * y));
  EXPECT_EQ(a.grad().dtype(), DataType::kBFloat16);
  ExpectEqual(a.grad(), {2, 2});
  ExpectEqual(b.grad(), {4, 4});
}

TEST_P(ViewTest, UnusedPiecesOfASplitHaveZeroGradient) {
  const Tensor x = Counting({6});
  x.set_requires_grad();
  const std::vector<Tensor> pieces = Split(x, {2, 1, 3}, 0);
  Backward(Sum(pieces[1] * 5));
  ExpectEqual(x.grad(), {0, 0, 5, 0, 0, 0});
}

TEST_P(ViewTest, SplitIsOneNode) {
  const Tensor x = Counting({6});
  x.set_requires_grad();
  const std::vector<Tensor> pieces = Split(x, {2, 1, 3}, 0);
  EXPECT_EQ(pieces[0].autograd_meta()->grad_fn, pieces[2].autograd_meta()->grad_fn);
}

TEST_P(ViewTest, IntegerTensorsHaveNoHistory) {
  const Tensor x = Counting({2, 3});
  x.set_requires_grad();
  EXPECT_FALSE(To(x, DataType::kInt64).requires_grad());
  EXPECT_TRUE(To(x, DataType::kBFloat16).requires_grad());
}

TEST_P(ViewTest, ToConvertsTheGradientBack) {
  for (const DataType from : test::kFloatingTypes) {
    for (const DataType to : test::kFloatingTypes) {
      const Tensor x = test::MakeTensor(device(), from, {2}, {1, 2});
      x.set_requires_grad();
      const Tensor y = To(x, to);
      EXPECT_EQ(y.dtype(), to);
      EXPECT_EQ(y.IsSameAs(x), from == to);
      Backward(Sum(y * y));
      EXPECT_EQ(x.grad().dtype(), from);
      ExpectEqual(x.grad(), {2, 4});
    }
  }
}

TEST_P(ViewTest, ToAnotherDeviceAndBack) {
  const Tensor x = test::MakeTensor(device(), DataType::kFloat32, {2, 3}, {0, 1, 2, 3, 4, 5},
                                    test::Layout::kTransposed);
  EXPECT_TRUE(To(x, device()).IsSameAs(x));
  const Tensor leaf = test::MakeTensor(device(), DataType::kFloat32, {2, 3}, {0, 1, 2, 3, 4, 5},
                                       test::Layout::kTransposed);
  leaf.set_requires_grad();
  const Tensor host = To(leaf, Device());
  EXPECT_TRUE(host.device().is_cpu());
  ExpectEqual(host, {0, 1, 2, 3, 4, 5});
  const Tensor back = To(host * 2, device());
  Backward(Sum(back * back));
  EXPECT_EQ(leaf.grad().device(), device());
  ExpectEqual(leaf.grad(), {0, 8, 16, 24, 32, 40});
}

}  // namespace
}  // namespace infini_train
