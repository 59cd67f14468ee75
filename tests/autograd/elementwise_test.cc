#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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
using test::ToDoubles;

class ElementwiseTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(ElementwiseTest);

struct Unary {
  const char* name;
  Tensor (*function)(const Tensor& x);
  double low;
  double high;
};

constexpr Unary kUnaryFunctions[] = {
    {"Neg", Neg, -2, 2},
    {"Abs", Abs, -2, 2},
    {"Square", Square, -2, 2},
    {"Exp", Exp, -2, 2},
    {"Log", Log, 0.5, 2},
    {"Sqrt", Sqrt, 0.5, 2},
    {"Rsqrt", Rsqrt, 0.5, 2},
    {"Reciprocal", Reciprocal, 0.5, 2},
    {"Sin", Sin, -3, 3},
    {"Cos", Cos, -3, 3},
    {"Tanh", Tanh, -2, 2},
    {"Sigmoid", Sigmoid, -3, 3},
    {"Silu", Silu, -3, 3},
    {"Gelu", [](const Tensor& x) { return Gelu(x); }, -3, 3},
    {"Gelu by tanh", [](const Tensor& x) { return Gelu(x, GeluApproximation::kTanh); }, -3, 3},
};

TEST_P(ElementwiseTest, UnaryGradients) {
  for (const Unary& unary : kUnaryFunctions) {
    for (const Dims& shape : {Dims{}, Dims{3, 2, 5}, Dims{2, 0, 3}}) {
      CheckGradients(device(), {.name = unary.name,
                                .function = [&](const Inputs& x) { return unary.function(x[0]); },
                                .inputs = {{shape, unary.low, unary.high}},
                                .operations = 12});
    }
  }
}

TEST_P(ElementwiseTest, UnaryFunctionsRefuseIntegers) {
  const Tensor x = MakeTensor(device(), DataType::kUInt8, {2}, {1, 2});
  for (const Unary& unary : kUnaryFunctions)
    EXPECT_THROW(unary.function(x), Error) << unary.name;
}

TEST_P(ElementwiseTest, SignedIntegersStayIntegers) {
  const Tensor x = MakeTensor(device(), DataType::kInt32, {3}, {-3, 0, 2});
  ExpectEqual(Neg(x), {3, 0, -2});
  ExpectEqual(Abs(x), {3, 0, 2});
  ExpectEqual(Square(x), {9, 0, 4});
  EXPECT_EQ(Square(x).dtype(), DataType::kInt32);
}

TEST_P(ElementwiseTest, AbsHasNoSlopeAtZero) {
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {3}, {-3, 0, 2});
  x.set_requires_grad();
  Backward(Sum(Abs(x)));
  ExpectEqual(x.grad(), {-1, 0, 1});
}

TEST_P(ElementwiseTest, GeluIsFlatWhereItHasSaturated) {
  for (const GeluApproximation approximation :
       {GeluApproximation::kNone, GeluApproximation::kTanh}) {
    const Tensor x = MakeTensor(device(), DataType::kFloat32, {4}, {-1e4, -40, 40, 1e4});
    x.set_requires_grad();
    const Tensor y = Gelu(x, approximation);
    Backward(Sum(y));
    ExpectEqual(y, {0, 0, 40, 1e4});
    ExpectEqual(x.grad(), {0, 0, 1, 1});
  }
}

TEST_P(ElementwiseTest, SwiGluGradients) {
  for (const Dims& shape : {Dims{6}, Dims{3, 2, 8}, Dims{0, 4}, Dims{3, 0}}) {
    CheckGradients(device(), {.name = "SwiGlu " + shape.ToString(),
                              .function = [](const Inputs& x) { return SwiGlu(x[0]); },
                              .inputs = {{shape}}});
  }
}

TEST_P(ElementwiseTest, SwiGluIsSiluOfTheGateTimesUp) {
  const Tensor x = Normal({5, 6}, 0, 1, DataType::kFloat64, device());
  const Tensor expected = Silu(Slice(x, 1, 0, 3)) * Slice(x, 1, 3);
  test::ExpectClose(SwiGlu(x), ToDoubles(expected), {.operations = 8});
  EXPECT_THROW(SwiGlu(Normal({2, 3}, 0, 1, DataType::kFloat64, device())), Error);
}

TEST_P(ElementwiseTest, DropoutGradientHasTheSameMask) {
  Generator generator(5);
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {40, 25}, std::vector<double>(1000, 1),
                              test::Layout::kTransposed);
  x.set_requires_grad();
  const Tensor y = Dropout(x, 0.25, true, &generator);
  Backward(Sum(y * 3));
  const std::vector<double> values = ToDoubles(y);
  const std::vector<double> grads = ToDoubles(x.grad());
  int dropped = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(values[i] == 0 || std::fabs(values[i] - 4.0 / 3) < 1e-6);
    EXPECT_NEAR(grads[i], 3 * values[i], 1e-5);
    dropped += values[i] == 0;
  }
  // 250 expected, with a standard deviation below 14.
  EXPECT_NEAR(dropped, 250, 70);
}

TEST_P(ElementwiseTest, DropoutDrawsFromTheGenerator) {
  const Tensor x = Full({100}, 1, DataType::kFloat32, device());
  ManualSeed(3);
  const std::vector<double> first = ToDoubles(Dropout(x, 0.5));
  EXPECT_NE(ToDoubles(Dropout(x, 0.5)), first);
  ManualSeed(3);
  EXPECT_EQ(ToDoubles(Dropout(x, 0.5)), first);
}

TEST_P(ElementwiseTest, DropoutDoesNothingInEvaluationOrWithProbabilityZero) {
  const Tensor x = Full({4}, 1, DataType::kFloat32, device());
  const Generator::State before = DefaultGenerator().state();
  EXPECT_TRUE(Dropout(x, 0.5, false).IsSameAs(x));
  EXPECT_TRUE(Dropout(x, 0).IsSameAs(x));
  EXPECT_EQ(DefaultGenerator().state(), before);
  EXPECT_THROW(Dropout(x, 1), Error);
  EXPECT_THROW(Dropout(x, -0.1), Error);
  EXPECT_THROW(Dropout(x, std::numeric_limits<double>::quiet_NaN()), Error);
}

}  // namespace
}  // namespace infini_train
