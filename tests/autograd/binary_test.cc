#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
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

class BinaryTest : public DeviceTest {
 protected:
  Tensor Floats(const std::vector<double>& values) const {
    return MakeTensor(device(), DataType::kFloat32, {static_cast<std::int64_t>(values.size())},
                      values);
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(BinaryTest);

using Function = Tensor (*)(const Tensor& a, const Tensor& b);

struct Binary {
  const char* name;
  Function function;
  double low;
  double high;
};

constexpr Binary kDifferentiable[] = {
    {"Add", Add, -2, 2},         {"Sub", Sub, -2, 2},  {"Mul", Mul, -2, 2},
    {"Div", Div, 0.5, 2},        {"Pow", Pow, 0.5, 2}, {"Maximum", Maximum, -2, 2},
    {"Minimum", Minimum, -2, 2},
};

struct ShapePair {
  Dims a;
  Dims b;
};

const ShapePair kShapePairs[] = {
    {{}, {}},      {{3, 5}, {3, 5}},    {{2, 3, 4}, {4}}, {{3, 1}, {1, 5}}, {{}, {2, 3}},
    {{1}, {2, 3}}, {{2, 1, 3}, {4, 1}}, {{0, 3}, {3}},    {{1}, {0}},
};

TEST_P(BinaryTest, GradientsWithBroadcasting) {
  for (const Binary& binary : kDifferentiable) {
    for (const ShapePair& shapes : kShapePairs) {
      CheckGradients(
          device(),
          {.name = std::string(binary.name) + " of " + shapes.a.ToString() + " and " +
                   shapes.b.ToString(),
           .function = [&](const Inputs& x) { return binary.function(x[0], x[1]); },
           .inputs = {{shapes.a, binary.low, binary.high}, {shapes.b, binary.low, binary.high}},
           .operations = 24});
    }
  }
}

TEST_P(BinaryTest, OneTensorOnBothSides) {
  for (const Function function : std::initializer_list<Function>{Add, Sub, Mul, Div}) {
    CheckGradients(device(), {.name = "f(x, x)",
                              .function = [&](const Inputs& x) { return function(x[0], x[0]); },
                              .inputs = {{{3, 2}, 0.5, 2}}});
  }
}

TEST_P(BinaryTest, ShapesThatDoNotBroadcastAreAnError) {
  EXPECT_THROW(Add(Floats({1, 2}), Floats({1, 2, 3})), Error);
  EXPECT_THROW(Lt(Floats({1, 2}), Floats({1, 2, 3})), Error);
}

TEST_P(BinaryTest, OperandsMeetInThePromotedType) {
  for (const DataType a : test::kAllTypes) {
    for (const DataType b : test::kAllTypes) {
      const DataType expected = PromoteTypes(a, b);
      const Tensor x = MakeTensor(device(), a, {2}, {1, 1});
      const Tensor y = MakeTensor(device(), b, {2, 1}, {1, 0});
      if (expected == DataType::kBool) {
        EXPECT_THROW(Add(x, y), Error);
      } else {
        const Tensor sum = Add(x, y);
        EXPECT_EQ(sum.dtype(), expected);
        ExpectEqual(sum, {2, 2, 1, 1});
        EXPECT_EQ(Maximum(x, y).dtype(), expected);
      }
      const Tensor quotient = Div(y, x);
      EXPECT_EQ(quotient.dtype(), IsFloatingPoint(expected) ? expected : DataType::kFloat32);
      ExpectEqual(quotient, {1, 1, 0, 0});
      ExpectEqual(Ge(y, x), {1, 1, 0, 0});
      EXPECT_EQ(Ge(y, x).dtype(), DataType::kBool);
      EXPECT_EQ(Where(Eq(x, x), x, y).dtype(), expected);
    }
  }
}

TEST_P(BinaryTest, GradientsHaveTheOperandsTypes) {
  for (const Binary& binary : kDifferentiable) {
    const Tensor a = Full({2, 3}, 1.5, DataType::kBFloat16, device());
    const Tensor b = Full({3}, 0.5, DataType::kFloat32, device());
    a.set_requires_grad();
    b.set_requires_grad();
    const Tensor y = binary.function(a, b);
    EXPECT_EQ(y.dtype(), DataType::kFloat32);
    Backward(Sum(y));
    EXPECT_EQ(a.grad().dtype(), DataType::kBFloat16) << binary.name;
    EXPECT_EQ(b.grad().dtype(), DataType::kFloat32) << binary.name;
  }
}

TEST_P(BinaryTest, EqualElementsShareTheGradient) {
  for (const Function function : std::initializer_list<Function>{Maximum, Minimum}) {
    const Tensor a = Floats({1, 2, 3});
    const Tensor b = Floats({2, 2, 2});
    a.set_requires_grad();
    b.set_requires_grad();
    Backward(Sum(function(a, b)));
    const bool maximum = function == static_cast<Function>(Maximum);
    ExpectEqual(a.grad(), {maximum ? 0.0 : 1.0, 0.5, maximum ? 1.0 : 0.0});
    ExpectEqual(b.grad(), {maximum ? 1.0 : 0.0, 0.5, maximum ? 0.0 : 1.0});
  }
}

TEST_P(BinaryTest, PowAtZero) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor a = Floats({0, 0, 0, 0, 2});
  const Tensor b = Floats({0, 1, 2, 0.5, 0});
  a.set_requires_grad();
  b.set_requires_grad();
  Backward(Sum(Pow(a, b)));
  ExpectEqual(a.grad(), {0, 1, 0, infinity, 0});
  const std::vector<double> by_exponent = test::ToDoubles(b.grad());
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(by_exponent[i], 0);
  EXPECT_NEAR(by_exponent[4], std::log(2), 1e-6);
}

TEST_P(BinaryTest, PowOfANumberAtZero) {
  const double infinity = std::numeric_limits<double>::infinity();
  const struct {
    Scalar exponent;
    double value;
    double gradient;
  } kCases[] = {{0, 1, 0}, {0.0, 1, 0}, {1, 0, 1}, {2, 0, 0}, {3, 0, 0}, {0.5, 0, infinity}};
  for (const auto& c : kCases) {
    const Tensor x = Floats({0});
    x.set_requires_grad();
    const Tensor y = Pow(x, c.exponent);
    Backward(Sum(y));
    ExpectEqual(y, {c.value});
    ExpectEqual(x.grad(), {c.gradient});
  }
}

TEST_P(BinaryTest, GradientsWithNumbers) {
  const struct {
    const char* name;
    Tensor (*function)(const Tensor& x);
  } kCases[] = {
      {"x + 3", [](const Tensor& x) { return x + 3; }},
      {"1.5 + x", [](const Tensor& x) { return 1.5 + x; }},
      {"x - 3", [](const Tensor& x) { return x - 3; }},
      {"3 - x", [](const Tensor& x) { return 3 - x; }},
      {"x * -2", [](const Tensor& x) { return x * -2; }},
      {"0.5 * x", [](const Tensor& x) { return 0.5 * x; }},
      {"x / 3", [](const Tensor& x) { return x / 3; }},
      {"3 / x", [](const Tensor& x) { return 3 / x; }},
      {"-x", [](const Tensor& x) { return -x; }},
      {"x^0", [](const Tensor& x) { return Pow(x, 0); }},
      {"x^1", [](const Tensor& x) { return Pow(x, 1); }},
      {"x^2", [](const Tensor& x) { return Pow(x, 2); }},
      {"x^-1.5", [](const Tensor& x) { return Pow(x, -1.5); }},
      {"clamp", [](const Tensor& x) { return Clamp(x, 0.8, 1.3); }},
      {"clamp with low above high", [](const Tensor& x) { return Clamp(x, 2, 1); }},
  };
  for (const auto& c : kCases) {
    for (const Dims& shape : {Dims{}, Dims{3, 2, 4}, Dims{0, 2}}) {
      CheckGradients(device(), {.name = c.name,
                                .function = [&](const Inputs& x) { return c.function(x[0]); },
                                .inputs = {{shape, 0.5, 2}},
                                .operations = 24});
    }
  }
}

TEST_P(BinaryTest, ClampPassesTheGradientAtItsBounds) {
  const Tensor x = Floats({-2, -1, 0, 1, 2});
  x.set_requires_grad();
  Backward(Sum(Clamp(x, -1, 1)));
  ExpectEqual(x.grad(), {0, 1, 1, 1, 0});
}

TEST_P(BinaryTest, NumbersKeepIntegersWhereTheyCan) {
  const Tensor x = MakeTensor(device(), DataType::kInt64, {3}, {-2, 1, 5});
  EXPECT_EQ(Add(x, 1).dtype(), DataType::kInt64);
  ExpectEqual(Sub(x, 1), {-3, 0, 4});
  ExpectEqual(Sub(1, x), {3, 0, -4});
  ExpectEqual(Mul(x, 3), {-6, 3, 15});
  ExpectEqual(Clamp(x, 0, 2), {0, 1, 2});
  EXPECT_EQ(Clamp(x, 0, 2).dtype(), DataType::kInt64);
  EXPECT_EQ(Mul(x, 0.5).dtype(), DataType::kFloat32);
  ExpectEqual(Mul(x, 0.5), {-1, 0.5, 2.5});
  ExpectEqual(Clamp(x, 0.5, 2), {0.5, 1, 2});
  EXPECT_EQ(Div(x, 2).dtype(), DataType::kFloat32);
  ExpectEqual(Div(x, 2), {-1, 0.5, 2.5});
  ExpectEqual(Div(10, x), {-5, 10, 2});
  ExpectEqual(Pow(x, 2), {4, 1, 25});
  const Tensor bytes = MakeTensor(device(), DataType::kUInt8, {2}, {1, 200});
  ExpectEqual(Sub(bytes, 1), {0, 199});
  EXPECT_EQ(Sub(bytes, 1).dtype(), DataType::kUInt8);
  const Tensor flags = MakeTensor(device(), DataType::kBool, {2}, {1, 0});
  EXPECT_EQ(Add(flags, 1).dtype(), DataType::kInt64);
  ExpectEqual(Add(flags, 1), {2, 1});
  const Tensor large =
      Full({1}, std::numeric_limits<std::int64_t>::max(), DataType::kInt64, device());
  EXPECT_EQ(Sub(large, 1).ToVector<std::int64_t>()[0],
            std::numeric_limits<std::int64_t>::max() - 1);
}

TEST_P(BinaryTest, ANumberKeepsTheFloatingType) {
  for (const DataType dtype : test::kFloatingTypes) {
    const Tensor x = MakeTensor(device(), dtype, {2}, {1, 4});
    EXPECT_EQ(Add(x, 0.5).dtype(), dtype);
    ExpectEqual(Sub(x, 0.5), {0.5, 3.5});
    ExpectEqual(Div(1, x), {1, 0.25});
  }
}

TEST_P(BinaryTest, Comparisons) {
  const Tensor a = Floats({1, 2, 3, std::nan("")});
  const Tensor b = Floats({2, 2, 2, std::nan("")});
  ExpectEqual(Eq(a, b), {0, 1, 0, 0});
  ExpectEqual(Ne(a, b), {1, 0, 1, 1});
  ExpectEqual(Lt(a, b), {1, 0, 0, 0});
  ExpectEqual(Le(a, b), {1, 1, 0, 0});
  ExpectEqual(Gt(a, b), {0, 0, 1, 0});
  ExpectEqual(Ge(a, b), {0, 1, 1, 0});
  a.set_requires_grad();
  EXPECT_FALSE(Lt(a, b).requires_grad());
}

TEST_P(BinaryTest, Logic) {
  const Tensor a = MakeTensor(device(), DataType::kBool, {2, 1}, {0, 1});
  const Tensor b = MakeTensor(device(), DataType::kBool, {2}, {0, 1});
  ExpectEqual(LogicalAnd(a, b), {0, 0, 0, 1});
  ExpectEqual(LogicalOr(a, b), {0, 1, 1, 1});
  ExpectEqual(LogicalNot(b), {1, 0});
  EXPECT_THROW(LogicalAnd(a, Floats({1})), Error);
  EXPECT_THROW(LogicalOr(Floats({1}), a), Error);
  EXPECT_THROW(LogicalNot(Floats({1})), Error);
  EXPECT_THROW(Where(Floats({1}), Floats({1}), Floats({1})), Error);
  EXPECT_THROW(MaskedFill(Floats({1}), Floats({1}), 0), Error);
}

TEST_P(BinaryTest, WhereGradients) {
  const Tensor condition = MakeTensor(device(), DataType::kBool, {2, 1, 3}, {1, 0, 1, 0, 0, 1});
  for (const ShapePair& shapes :
       {ShapePair{{2, 4, 3}, {2, 4, 3}}, ShapePair{{3}, {4, 1}}, ShapePair{{}, {1, 1, 1}}}) {
    CheckGradients(device(),
                   {.name = "Where",
                    .function = [&](const Inputs& x) { return Where(condition, x[0], x[1]); },
                    .inputs = {{shapes.a}, {shapes.b}}});
  }
  const Tensor mask = MakeTensor(device(), DataType::kBool, {4, 1}, {1, 0, 1, 0});
  for (const Dims& shape : {Dims{4, 3}, Dims{2, 1, 3}, Dims{}}) {
    CheckGradients(device(),
                   {.name = "MaskedFill",
                    .function = [&](const Inputs& x) { return MaskedFill(x[0], mask, -7.5); },
                    .inputs = {{shape}}});
  }
}

TEST_P(BinaryTest, MaskedElementsHaveNoGradientEvenWhereItIsNotFinite) {
  const Tensor x = Floats({0, 4});
  x.set_requires_grad();
  const Tensor y = MaskedFill(Sqrt(x), Eq(x, Floats({0})), 0);
  Backward(Sum(Pow(y, 2)));
  EXPECT_FALSE(std::isinf(test::ToDoubles(x.grad())[0]));
  ExpectEqual(Slice(x.grad(), 0, 1), {1});
}

TEST_P(BinaryTest, MaskedFillKeepsTheType) {
  const Tensor x = MakeTensor(device(), DataType::kInt32, {2}, {1, 2});
  const Tensor mask = MakeTensor(device(), DataType::kBool, {2}, {1, 0});
  ExpectEqual(MaskedFill(x, mask, 9), {9, 2});
  EXPECT_EQ(MaskedFill(x, mask, 9).dtype(), DataType::kInt32);
  EXPECT_THROW(MaskedFill(x, mask, 0.5), Error);
}

}  // namespace
}  // namespace infini_train
