#include <gtest/gtest.h>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"
#include "tests/common/gradcheck.h"

namespace infini_train {
namespace {

using test::CheckGradients;
using test::ExpectEqual;
using test::Inputs;
using test::MakeTensor;

class InPlaceTest : public DeviceTest {
 protected:
  Tensor Floats(const std::vector<double>& values) const {
    return MakeTensor(device(), DataType::kFloat32, {static_cast<std::int64_t>(values.size())},
                      values);
  }
  Tensor Leaf(const std::vector<double>& values) const {
    return Floats(values).set_requires_grad();
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(InPlaceTest);

TEST_P(InPlaceTest, Gradients) {
  CheckGradients(device(), {.name = "AddInPlace",
                            .function =
                                [](const Inputs& x) {
                                  const Tensor y = x[0] * 2;
                                  AddInPlace(y, x[1], 3);
                                  return y;
                                },
                            .inputs = {{{2, 3}}, {{3}}},
                            .operations = 24});
  CheckGradients(device(), {.name = "MulInPlace",
                            .function =
                                [](const Inputs& x) {
                                  const Tensor y = x[0] + 1;
                                  MulInPlace(y, x[1]);
                                  MulInPlace(y, 0.5);
                                  return y;
                                },
                            .inputs = {{{2, 3}}, {{2, 1}}},
                            .operations = 24});
  CheckGradients(device(), {.name = "MulInPlace by itself",
                            .function =
                                [](const Inputs& x) {
                                  const Tensor y = x[0] + 1;
                                  MulInPlace(y, y);
                                  return y;
                                },
                            .inputs = {{{2, 3}}},
                            .operations = 24});
  CheckGradients(device(), {.name = "CopyInPlace over a value with a history",
                            .function =
                                [](const Inputs& x) {
                                  const Tensor y = x[0] * 2;
                                  const Tensor z = y + x[1];
                                  CopyInPlace(y, x[1]);
                                  return y * z;
                                },
                            .inputs = {{{2, 3}}, {{3}}},
                            .operations = 24});
  CheckGradients(device(), {.name = "FillInPlace",
                            .function =
                                [](const Inputs& x) {
                                  const Tensor y = x[0] * 2;
                                  const Tensor z = y + 1;
                                  FillInPlace(y, 4);
                                  return y * z;
                                },
                            .inputs = {{{2, 3}}},
                            .operations = 24});
}

TEST_P(InPlaceTest, AConstantGetsAHistory) {
  const Tensor w = Leaf({1, 2, 3});
  const Tensor sum = Zeros({3}, DataType::kFloat32, device());
  for (int i = 1; i <= 3; ++i)
    AddInPlace(sum, w, i);
  EXPECT_TRUE(sum.requires_grad());
  ExpectEqual(sum, {6, 12, 18});
  Backward(Sum(sum));
  ExpectEqual(w.grad(), {6, 6, 6});
}

TEST_P(InPlaceTest, TheSameTensorThroughTwoHandles) {
  const Tensor w = Leaf({1, 2, 3});
  const Tensor y = w * 2;
  const Tensor same = y;
  AddInPlace(y, same);
  ExpectEqual(y, {4, 8, 12});
  Backward(Sum(y));
  ExpectEqual(w.grad(), {4, 4, 4});
}

TEST_P(InPlaceTest, ConvertsAndBroadcasts) {
  const Tensor x = Zeros({2, 3}, DataType::kBFloat16, device());
  CopyInPlace(x, Floats({1, 2, 3}));
  ExpectEqual(x, {1, 2, 3, 1, 2, 3});
  AddInPlace(x, Floats({1}), 0.5);
  ExpectEqual(x, {1.5, 2.5, 3.5, 1.5, 2.5, 3.5});
  const Tensor w = Leaf({1, 2, 3});
  CopyInPlace(x, w);
  Backward(Sum(x));
  EXPECT_EQ(w.grad().dtype(), DataType::kFloat32);
  ExpectEqual(w.grad(), {2, 2, 2});
}

TEST_P(InPlaceTest, WritesThroughViewsWithoutHistory) {
  const Tensor x = Zeros({2, 3}, DataType::kFloat32, device());
  FillInPlace(Slice(x, 1, 1, 2), 7);
  AddInPlace(Select(x, 0, 1), Floats({1, 1, 1}));
  ExpectEqual(x, {0, 7, 0, 1, 8, 1});
}

TEST_P(InPlaceTest, OverlappingOperandsAreReadFirst) {
  const Tensor x = Floats({1, 2, 3, 4});
  AddInPlace(Slice(x, 0, 1), Slice(x, 0, 0, 3));
  ExpectEqual(x, {1, 3, 5, 7});
  CopyInPlace(Slice(x, 0, 1), Slice(x, 0, 0, 3));
  ExpectEqual(x, {1, 1, 3, 5});
}

TEST_P(InPlaceTest, ALeafThatRequiresAGradientIsRefused) {
  const Tensor w = Leaf({1, 2});
  EXPECT_THROW(FillInPlace(w, 0), Error);
  EXPECT_THROW(AddInPlace(w, Floats({1, 1})), Error);
  EXPECT_THROW(MulInPlace(w, 2), Error);
  ExpectEqual(w, {1, 2});
  NoGrad no_grad;
  AddInPlace(w, Floats({1, 1}));
  ExpectEqual(w, {2, 3});
  EXPECT_TRUE(w.is_leaf());
}

TEST_P(InPlaceTest, AViewInARecordedGraphIsRefused) {
  const Tensor w = Leaf({1, 2});
  const Tensor view = Slice(w * 2, 0, 1);
  EXPECT_THROW(FillInPlace(view, 0), Error);
  EXPECT_THROW(MulInPlace(Split(w, {1, 1}, 0)[0], 2), Error);
}

TEST_P(InPlaceTest, HistoryThatOthersWouldMissIsRefused) {
  const Tensor w = Leaf({1, 2});
  const Tensor buffer = Zeros({4}, DataType::kFloat32, device());
  EXPECT_THROW(CopyInPlace(Slice(buffer, 0, 0, 2), w), Error);
  ExpectEqual(buffer, {0, 0, 0, 0});
  CopyInPlace(Slice(buffer, 0, 0, 2), w.Detach());
  ExpectEqual(buffer, {1, 2, 0, 0});
}

TEST_P(InPlaceTest, AnExpandedTensorIsRefused) {
  EXPECT_THROW(FillInPlace(Expand(Floats({1}), {3}), 0), Error);
}

TEST_P(InPlaceTest, ShapesAndTypesThatDoNotFitAreErrors) {
  const Tensor x = Floats({1, 2});
  EXPECT_THROW(AddInPlace(x, Floats({1, 2, 3})), Error);
  EXPECT_THROW(CopyInPlace(x, Zeros({2, 2}, DataType::kFloat32, device())), Error);
  const Tensor integers = MakeTensor(device(), DataType::kInt64, {2}, {1, 2});
  EXPECT_THROW(AddInPlace(integers, x), Error);
  EXPECT_THROW(AddInPlace(integers, integers, 0.5), Error);
  EXPECT_THROW(MulInPlace(integers, 0.5), Error);
  AddInPlace(integers, integers, 2);
  ExpectEqual(integers, {3, 6});
  AddInPlace(x, integers);
  ExpectEqual(x, {4, 8});
}

}  // namespace
}  // namespace infini_train
