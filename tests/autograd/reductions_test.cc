#include <gtest/gtest.h>

#include <cmath>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"
#include "tests/common/gradcheck.h"

namespace infini_train {
namespace {

using test::CheckGradients;
using test::ExpectEqual;
using test::Inputs;
using test::MakeTensor;

class ReductionTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(ReductionTest);

struct DimsCase {
  Dims shape;
  std::vector<int> dims;
  bool keepdim;
};

const DimsCase kDimsCases[] = {
    {{}, {}, false},
    {{5}, {}, true},
    {{3, 4}, {}, false},
    {{3, 4}, {0}, false},
    {{3, 4}, {-1}, true},
    {{2, 3, 4}, {0, 2}, false},
    {{2, 3, 4}, {1, -1}, true},
    {{2, 3, 4}, {1}, false},
};

TEST_P(ReductionTest, SumAndMeanGradients) {
  for (const DimsCase& c : kDimsCases) {
    CheckGradients(device(),
                   {.name = "Sum of " + c.shape.ToString(),
                    .function = [&](const Inputs& x) { return Sum(x[0], c.dims, c.keepdim); },
                    .inputs = {{c.shape}},
                    .operations = 16});
    CheckGradients(device(),
                   {.name = "Mean of " + c.shape.ToString(),
                    .function = [&](const Inputs& x) { return Mean(x[0], c.dims, c.keepdim); },
                    .inputs = {{c.shape}},
                    .operations = 16});
  }
}

TEST_P(ReductionTest, MaxAndMinGradients) {
  for (const DimsCase& c : kDimsCases) {
    CheckGradients(device(),
                   {.name = "Max of " + c.shape.ToString(),
                    .function = [&](const Inputs& x) { return Max(x[0], c.dims, c.keepdim); },
                    .inputs = {{c.shape}},
                    .expanded = false});
    CheckGradients(device(),
                   {.name = "Min of " + c.shape.ToString(),
                    .function = [&](const Inputs& x) { return Min(x[0], c.dims, c.keepdim); },
                    .inputs = {{c.shape}},
                    .expanded = false});
  }
}

TEST_P(ReductionTest, GradientsOverNothing) {
  CheckGradients(device(), {.name = "Sum over nothing",
                            .function = [](const Inputs& x) { return Sum(x[0], {1}); },
                            .inputs = {{{2, 0, 3}}}});
  CheckGradients(device(), {.name = "Max of no rows",
                            .function = [](const Inputs& x) { return Max(x[0], {1}); },
                            .inputs = {{{0, 2}}},
                            .expanded = false});
  const Tensor empty = Zeros({2, 0}, DataType::kFloat32, device());
  ExpectEqual(Sum(empty), {0});
  EXPECT_TRUE(std::isnan(Mean(empty).Item()));
  EXPECT_THROW(Max(empty), Error);
  EXPECT_THROW(Min(empty, {1}), Error);
  EXPECT_THROW(ArgMax(empty, 1), Error);
  EXPECT_EQ(ArgMin(empty, 0).shape(), (Dims{0}));
}

TEST_P(ReductionTest, EqualExtremesShareTheGradient) {
  for (const DataType dtype : test::kFloatingTypes) {
    const Tensor x = MakeTensor(device(), dtype, {2, 4}, {1, 3, 3, 0, 2, 2, 2, 2});
    x.set_requires_grad();
    Backward(Sum(Max(x, {1})));
    ExpectEqual(x.grad(), {0, 0.5, 0.5, 0, 0.25, 0.25, 0.25, 0.25});
    EXPECT_EQ(x.grad().dtype(), dtype);
  }
  // More equal elements than bfloat16 can count.
  const Tensor many = Full({1024}, 1, DataType::kBFloat16, device());
  many.set_requires_grad();
  Backward(Min(many));
  ExpectEqual(many.grad(), std::vector<double>(1024, 1.0 / 1024));
}

TEST_P(ReductionTest, TypesOfSums) {
  for (const DataType dtype : test::kAllTypes) {
    const Tensor x = Full({300}, 1, dtype, device());
    const DataType expected = IsFloatingPoint(dtype) ? dtype : DataType::kInt64;
    EXPECT_EQ(Sum(x).dtype(), expected);
    ExpectEqual(Sum(x), {300});
    EXPECT_EQ(CumSum(x, 0).dtype(), expected);
    if (!IsFloatingPoint(dtype)) {
      EXPECT_THROW(Mean(x), Error);
    }
    EXPECT_EQ(Max(x).dtype(), dtype);
  }
}

TEST_P(ReductionTest, BadDimensionsAreErrors) {
  const Tensor x = Zeros({2, 3}, DataType::kFloat32, device());
  EXPECT_THROW(Sum(x, {2}), Error);
  EXPECT_THROW(Sum(x, {0, -2}), Error);
  EXPECT_THROW(Softmax(x, 2), Error);
  EXPECT_THROW(CumSum(x, -3), Error);
  EXPECT_THROW(Softmax(Zeros({2}, DataType::kInt64, device()), 0), Error);
}

TEST_P(ReductionTest, ArgMaxAndArgMin) {
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {2, 3}, {1, 5, 5, 0, -1, -1});
  x.set_requires_grad();
  ExpectEqual(ArgMax(x, 1), {1, 0});
  ExpectEqual(ArgMin(x, -1), {0, 1});
  ExpectEqual(ArgMax(x, 0, true), {0, 0, 0});
  EXPECT_EQ(ArgMax(x, 0, true).shape(), (Dims{1, 3}));
  EXPECT_EQ(ArgMax(x, 0).dtype(), DataType::kInt64);
  EXPECT_FALSE(ArgMax(x, 0).requires_grad());
}

TEST_P(ReductionTest, AlongOneDimensionGradients) {
  for (const int dim : {0, 1, -1}) {
    for (const Dims& shape : {Dims{3, 4, 2}, Dims{2, 0, 3}}) {
      CheckGradients(device(), {.name = "CumSum",
                                .function = [&](const Inputs& x) { return CumSum(x[0], dim); },
                                .inputs = {{shape}},
                                .operations = 16});
      CheckGradients(device(), {.name = "Softmax",
                                .function = [&](const Inputs& x) { return Softmax(x[0], dim); },
                                .inputs = {{shape}},
                                .operations = 16});
      CheckGradients(device(), {.name = "LogSoftmax",
                                .function = [&](const Inputs& x) { return LogSoftmax(x[0], dim); },
                                .inputs = {{shape}},
                                .operations = 16});
    }
  }
}

TEST_P(ReductionTest, CumSumValues) {
  const Tensor x = MakeTensor(device(), DataType::kInt32, {2, 3}, {1, 2, 3, 4, 5, 6});
  ExpectEqual(CumSum(x, 1), {1, 3, 6, 4, 9, 15});
  ExpectEqual(CumSum(x, 0), {1, 2, 3, 5, 7, 9});
}

TEST_P(ReductionTest, SoftmaxSumsToOneAlongItsDimension) {
  const Tensor x = Normal({3, 4, 5}, 0, 3, DataType::kFloat64, device());
  for (const int dim : {0, 1, 2}) {
    const std::vector<double> sums = test::ToDoubles(Sum(Softmax(x, dim), {dim}));
    for (const double sum : sums)
      EXPECT_NEAR(sum, 1, 1e-14);
    test::ExpectClose(Exp(LogSoftmax(x, dim)), test::ToDoubles(Softmax(x, dim)),
                      {.operations = 16});
  }
}

}  // namespace
}  // namespace infini_train
