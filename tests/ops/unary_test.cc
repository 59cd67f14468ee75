#include <cmath>
#include <functional>
#include <limits>

#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train::test {
namespace {

class UnaryTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(UnaryTest);

struct UnaryCase {
  const char* name;
  void (*call)(Tensor& out, const Tensor& x);
  double (*reference)(double x);
  double low;
  double high;
  /// Rounding steps, as Tolerance counts them.
  double operations;
  /// Those of the half types, whose functions may be less exact.
  double half_operations = operations;
};

constexpr double kSqrtTwoOverPi = 0.79788456080286535588;

double Sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double GeluTanh(double x) {
  return 0.5 * x * (1 + std::tanh(kSqrtTwoOverPi * (x + 0.044715 * x * x * x)));
}
double GeluErf(double x) {
  return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}

#define UNARY_CASE(Name, reference, low, high, ...)                                             \
  UnaryCase {                                                                                   \
#Name, [](Tensor & out, const Tensor& x) { Call<op::Name>(out, x); }, reference, low, high, \
                                                                       __VA_ARGS__              \
  }

const UnaryCase kCases[] = {
    UNARY_CASE(
        Neg, [](double x) { return -x; }, -9, 9, 0),
    UNARY_CASE(
        Abs, [](double x) { return std::fabs(x); }, -9, 9, 0),
    UNARY_CASE(
        Square, [](double x) { return x * x; }, -9, 9, 1),
    UNARY_CASE(
        Exp, [](double x) { return std::exp(x); }, -10, 10, 5),
    UNARY_CASE(
        Log, [](double x) { return std::log(x); }, 1e-3, 30, 5),
    UNARY_CASE(
        Sqrt, [](double x) { return std::sqrt(x); }, 0, 30, 1),
    UNARY_CASE(
        Rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1e-3, 30, 2),
    UNARY_CASE(
        Reciprocal, [](double x) { return 1 / x; }, 1e-3, 30, 1),
    UNARY_CASE(
        Sin, [](double x) { return std::sin(x); }, -100, 100, 5),
    UNARY_CASE(
        Cos, [](double x) { return std::cos(x); }, -100, 100, 5),
    UNARY_CASE(
        Tanh, [](double x) { return std::tanh(x); }, -12, 12, 5),
    UNARY_CASE(Sigmoid, Sigmoid, -30, 30, 5, 40),
    UNARY_CASE(
        Silu, [](double x) { return x * Sigmoid(x); }, -30, 30, 6, 41),
};

TEST_P(UnaryTest, MatchesTheReferenceInEveryTypeAndLayout) {
  for (const UnaryCase& unary : kCases) {
    for (DataType dtype : kFloatingTypes) {
      for (Layout layout : kAllLayouts) {
        for (const Dims& shape : {Dims{}, Dims{0, 4}, Dims{5, 3}, Dims{2, 3, 530}}) {
          SCOPED_TRACE(testing::Message() << unary.name << " " << testing::PrintToString(layout));
          const Tensor x = MakeTensor(device(), dtype, shape,
                                      RandomValues(Numel(shape), unary.low, unary.high, 7), layout);
          std::vector<double> expected = ToDoubles(x);
          for (double& value : expected)
            value = unary.reference(value);
          Tensor out = MakeOutput(device(), dtype, shape,
                                  layout == Layout::kExpanded ? Layout::kContiguous : layout);
          unary.call(out, x);
          const bool is_half = SizeOf(dtype) == 2;
          ExpectClose(out, expected,
                      {.operations = is_half ? unary.half_operations : unary.operations});
          ExpectGapsUntouched(out);
        }
      }
    }
  }
}

TEST_P(UnaryTest, SpecialValuesFollowIeee) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {0.0, -0.0, infinity, -infinity, std::nan("")};
  for (const UnaryCase& unary : kCases) {
    SCOPED_TRACE(unary.name);
    for (DataType dtype : kFloatingTypes) {
      const Tensor x = MakeTensor(device(), dtype, {5}, values);
      std::vector<double> expected;
      for (double value : values)
        expected.push_back(unary.reference(value));
      // The limit, where the formula would have infinity times 0.
      if (std::string_view(unary.name) == "Silu") expected[3] = 0;
      Tensor out = MakeOutput(device(), dtype, {5});
      unary.call(out, x);
      ExpectEqual(out, expected);
    }
  }
}

TEST_P(UnaryTest, IntegersWrap) {
  const auto check = [&](auto minimum) {
    using T = decltype(minimum);
    const std::vector<T> values = {0, 5, -7, minimum, std::numeric_limits<T>::max()};
    Tensor x = Tensor::Empty({5}, DataTypeOf<T>(), device());
    x.CopyFromHost(values.data(), values.size() * sizeof(T));
    Tensor out = MakeOutput(device(), DataTypeOf<T>(), {5});
    Call<op::Neg>(out, x);
    EXPECT_EQ(out.ToVector<T>(), (std::vector<T>{0, -5, 7, minimum, minimum + 1}));
    Call<op::Abs>(out, x);
    EXPECT_EQ(out.ToVector<T>(), (std::vector<T>{0, 5, 7, minimum, values[4]}));
    Call<op::Square>(out, x);
    EXPECT_EQ(out.ToVector<T>(), (std::vector<T>{0, 25, 49, 0, 1}));
  };
  check(std::numeric_limits<std::int64_t>::min());
  check(std::numeric_limits<std::int32_t>::min());
}

TEST_P(UnaryTest, WorksInPlaceOverSeveralThreadsAndTiles) {
  const std::int64_t count = 100003;
  for (DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    Tensor x = MakeTensor(device(), dtype, {count}, RandomValues(count, -5, 5, 3));
    std::vector<double> expected = ToDoubles(x);
    for (double& value : expected)
      value = std::tanh(value);
    Call<op::Tanh>(x, x);
    ExpectClose(x, expected, {.operations = 5});
  }
}

TEST_P(UnaryTest, RowsOfEveryLengthAndAlignment) {
  for (DataType dtype : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat64}) {
    for (std::int64_t length : kRowLengths) {
      for (Layout layout : {Layout::kContiguous, Layout::kSliced, Layout::kShifted}) {
        const Tensor x =
            MakeTensor(device(), dtype, {2, length}, RandomValues(2 * length, -5, 5, 3), layout);
        std::vector<double> expected = ToDoubles(x);
        for (double& value : expected)
          value = -value;
        for (Layout written : {Layout::kContiguous, layout}) {
          Tensor out = MakeOutput(device(), dtype, {2, length}, written);
          Call<op::Neg>(out, x);
          ExpectEqual(out, expected);
          ExpectGapsUntouched(out);
        }
      }
    }
  }
}

TEST_P(UnaryTest, LogicalNot) {
  const Tensor x = MakeTensor(device(), DataType::kBool, {4}, {1, 0, 0, 1}, Layout::kStepped);
  Tensor out = MakeOutput(device(), DataType::kBool, {4});
  Call<op::LogicalNot>(out, x);
  ExpectEqual(out, {0, 1, 1, 0});
}

TEST_P(UnaryTest, Gelu) {
  for (bool tanh_form : {true, false}) {
    for (DataType dtype : kFloatingTypes) {
      for (Layout layout : kAllLayouts) {
        const Dims shape = {7, 300};
        const Tensor x = MakeTensor(device(), dtype, shape, RandomValues(2100, -8, 8, 5), layout);
        std::vector<double> expected = ToDoubles(x);
        std::vector<double> scales = expected;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          // 1 + erf and 1 + tanh cancel where x is negative: an error of the 1.
          scales[i] = std::fabs(expected[i]);
          expected[i] = tanh_form ? GeluTanh(expected[i]) : GeluErf(expected[i]);
        }
        Tensor out = MakeOutput(device(), dtype, shape);
        Call<op::Gelu>(out, x, tanh_form);
        ExpectClose(out, expected, {.operations = 8}, scales);
      }
    }
  }
}

TEST_P(UnaryTest, GeluAtInfinityIsItsLimit) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (bool tanh_form : {true, false}) {
    for (DataType dtype : kFloatingTypes) {
      const Tensor x = MakeTensor(device(), dtype, {3}, {infinity, -infinity, std::nan("")});
      Tensor out = MakeOutput(device(), dtype, {3});
      Call<op::Gelu>(out, x, tanh_form);
      ExpectEqual(out, {infinity, 0, std::nan("")});
      const Tensor ones = MakeTensor(device(), dtype, {3}, {1, 1, 1});
      Call<op::GeluBackward>(out, ones, x, tanh_form);
      ExpectEqual(out, {1, 0, std::nan("")});
    }
  }
}

struct GradientCase {
  const char* name;
  void (*call)(Tensor& grad_x, const Tensor& grad_y, const Tensor& x);
  /// What the gradient is multiplied by.
  double (*slope)(double x);
};

double GeluTanhSlope(double x) {
  const double t = std::tanh(kSqrtTwoOverPi * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSqrtTwoOverPi * (1 + 3 * 0.044715 * x * x);
}
double GeluErfSlope(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * 0.5 * kSqrtTwoOverPi * std::exp(-x * x / 2);
}
double SiluSlope(double x) {
  return Sigmoid(x) * (1 + x * (1 - Sigmoid(x)));
}

const GradientCase kGradients[] = {
    {"TanhBackward",
     [](Tensor& g, const Tensor& gy, const Tensor& y) { Call<op::TanhBackward>(g, gy, y); },
     [](double y) { return 1 - y * y; }},
    {"SigmoidBackward",
     [](Tensor& g, const Tensor& gy, const Tensor& y) { Call<op::SigmoidBackward>(g, gy, y); },
     [](double y) { return y * (1 - y); }},
    {"SiluBackward",
     [](Tensor& g, const Tensor& gy, const Tensor& x) { Call<op::SiluBackward>(g, gy, x); },
     SiluSlope},
    {"GeluBackward tanh",
     [](Tensor& g, const Tensor& gy, const Tensor& x) { Call<op::GeluBackward>(g, gy, x, true); },
     GeluTanhSlope},
    {"GeluBackward erf",
     [](Tensor& g, const Tensor& gy, const Tensor& x) { Call<op::GeluBackward>(g, gy, x, false); },
     GeluErfSlope},
};

TEST_P(UnaryTest, Gradients) {
  for (const GradientCase& gradient : kGradients) {
    for (DataType dtype : kFloatingTypes) {
      for (Layout layout : kAllLayouts) {
        SCOPED_TRACE(gradient.name);
        const Dims shape = {5, 531};
        const Tensor x = MakeTensor(device(), dtype, shape, RandomValues(2655, -6, 6, 8), layout);
        const Tensor grad_y = MakeTensor(device(), dtype, shape, RandomValues(2655, -2, 2, 9));
        const std::vector<double> inputs = ToDoubles(x);
        std::vector<double> expected = ToDoubles(grad_y);
        std::vector<double> scales = expected;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          // The terms of the slope cancel; they are at most this large.
          scales[i] = std::fabs(expected[i]) * (1 + inputs[i] * inputs[i]);
          expected[i] *= gradient.slope(inputs[i]);
        }
        Tensor grad_x = MakeOutput(device(), dtype, shape);
        gradient.call(grad_x, grad_y, x);
        ExpectClose(grad_x, expected, {.operations = 12}, scales);
      }
    }
  }
}

/// A finite answer must not be reached through an infinite intermediate, in vector bodies or tails.
TEST_P(UnaryTest, GeluStaysFiniteWhereTanhHasSaturated) {
  const std::vector<double> x = {-1e13, -1000, -100, -10, -3, -1, 0, 1, 3, 10, 1000, 1e13};
  const std::vector<double> y = {0, 0,          0,          0,  -0.00363739, -0.15880801,
                                 0, 0.84119199, 2.99636261, 10, 1000,        1e13};
  const std::vector<double> slope = {0,   0,          0,          0, -0.01158417, -0.08296408,
                                     0.5, 1.08296408, 1.01158417, 1, 1,           1};
  for (DataType dtype : kFloatingTypes) {
    for (std::int64_t count : {12, 4099}) {
      std::vector<double> inputs(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < inputs.size(); ++i)
        inputs[i] = std::fmax(-65504, std::fmin(65504, x[i % 12]));
      const bool wide_range = dtype != DataType::kFloat16;
      if (wide_range) {
        for (std::size_t i = 0; i < inputs.size(); ++i)
          inputs[i] = x[i % 12];
      }
      const Tensor tensor = MakeTensor(device(), dtype, {count}, inputs);
      const Tensor ones = MakeTensor(device(), dtype, {count},
                                     std::vector<double>(static_cast<std::size_t>(count), 1.0));
      Tensor out = MakeOutput(device(), dtype, {count});
      Tensor grad = MakeOutput(device(), dtype, {count});
      Call<op::Gelu>(out, tensor, true);
      Call<op::GeluBackward>(grad, ones, tensor, true);
      const std::vector<double> stored = ToDoubles(tensor);
      const std::vector<double> found = ToDoubles(out);
      const std::vector<double> found_slope = ToDoubles(grad);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const std::size_t k = i % 12;
        if (std::fabs(x[k]) <= 3) {
          const double rounding = 2 * UnitRoundoff(dtype) * std::fabs(y[k]);
          EXPECT_NEAR(found[i], y[k], 2e-6 + rounding) << x[k];
          EXPECT_NEAR(found_slope[i], slope[k],
                      2e-6 + 2 * UnitRoundoff(dtype) * std::fabs(slope[k]))
              << x[k];
        } else {
          constexpr double kAlmostNothing = 1e-35;  // what may be left of e^-87 at -10
          EXPECT_NEAR(found[i], x[k] < 0 ? 0 : stored[i], kAlmostNothing) << x[k];
          EXPECT_NEAR(found_slope[i], slope[k], kAlmostNothing) << x[k];
        }
      }
    }
  }
}

TEST_P(UnaryTest, SwiGluAndItsGradient) {
  for (DataType dtype : kFloatingTypes) {
    std::vector<Dims> shapes = {{3, 5}, {0, 4}, {2, 4, 530}, {3, 0}};
    for (std::int64_t length : kRowLengths) {
      if (length <= 1000) shapes.push_back({3, length});
    }
    for (const Dims& shape : shapes) {
      Dims packed_shape = shape;
      packed_shape.back() *= 2;
      const std::int64_t width = shape.back();
      const Tensor x =
          MakeTensor(device(), dtype, packed_shape, RandomValues(Numel(packed_shape), -6, 6, 1));
      const Tensor grad_y =
          MakeTensor(device(), dtype, shape, RandomValues(Numel(shape), -2, 2, 2));
      const std::vector<double> inputs = ToDoubles(x);
      const std::vector<double> grads = ToDoubles(grad_y);
      std::vector<double> expected(grads.size());
      std::vector<double> expected_grad(inputs.size());
      std::vector<double> scales(inputs.size());
      for (std::size_t i = 0; i < grads.size(); ++i) {
        const std::size_t row = i / static_cast<std::size_t>(width);
        const std::size_t gate = i + row * static_cast<std::size_t>(width);
        const std::size_t up = gate + static_cast<std::size_t>(width);
        expected[i] = inputs[gate] * Sigmoid(inputs[gate]) * inputs[up];
        expected_grad[gate] = grads[i] * inputs[up] * SiluSlope(inputs[gate]);
        expected_grad[up] = grads[i] * inputs[gate] * Sigmoid(inputs[gate]);
        scales[gate] = std::fabs(grads[i] * inputs[up]) * (1 + std::fabs(inputs[gate]));
        scales[up] = std::fabs(expected_grad[up]);
      }
      Tensor out = MakeOutput(device(), dtype, shape);
      Call<op::SwiGlu>(out, x);
      // The fast sigmoid of a half type has an error of up to |x| + 7 roundings.
      const double more = SizeOf(dtype) == 2 ? 8 : 0;
      ExpectClose(out, expected, {.operations = 7 + more});
      Tensor grad_x = MakeOutput(device(), dtype, packed_shape);
      Tensor no_out;
      Call<op::SwiGluBackward>(grad_x, no_out, grad_y, x);
      ExpectClose(grad_x, expected_grad, {.operations = 10 + more}, scales);
      Tensor again = MakeOutput(device(), dtype, shape);
      Tensor grad_beside = MakeOutput(device(), dtype, packed_shape);
      Call<op::SwiGluBackward>(grad_beside, again, grad_y, x);
      ExpectSameBits(grad_beside, grad_x);
      ExpectClose(again, expected, {.operations = 7 + more});
    }
  }
}

TEST_P(UnaryTest, TypesThatAnOpDoesNotTakeAreNamed) {
  const Tensor x = MakeTensor(device(), DataType::kInt64, {2}, {1, 2});
  Tensor out = MakeOutput(device(), DataType::kInt64, {2});
  EXPECT_THAT(
      [&] { Call<op::Exp>(out, x); },
      testing::ThrowsMessage<Error>(testing::AllOf(
          testing::HasSubstr("Exp"), testing::HasSubstr("float32"), testing::HasSubstr("int64"))));
  Tensor wide = MakeOutput(device(), DataType::kFloat64, {2});
  const Tensor narrow = MakeTensor(device(), DataType::kFloat32, {2}, {1, 2});
  EXPECT_THROW(Call<op::Exp>(wide, narrow), Error);
}

}  // namespace
}  // namespace infini_train::test
