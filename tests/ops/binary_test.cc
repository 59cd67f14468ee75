#include <cmath>
#include <limits>

#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train::test {
namespace {

class BinaryTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(BinaryTest);

constexpr DataType kArithmeticTypes[] = {
    DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBFloat16,
    DataType::kInt64,   DataType::kInt32,   DataType::kUInt8,   DataType::kUInt16};

using BinaryCall = void (*)(Tensor& out, const Tensor& a, const Tensor& b);
using Reference = double (*)(double a, double b);

struct BinaryCase {
  const char* name;
  BinaryCall call;
  Reference reference;
  bool floating_only = false;
  bool predicate = false;
};

#define BINARY_CASE(Name, ...)                                             \
  BinaryCase {                                                             \
#Name, [](Tensor & out, const Tensor& a,                               \
              const Tensor& b) { Call<op::Name>(out, a, b); }, __VA_ARGS__ \
  }

const BinaryCase kCases[] = {
    BINARY_CASE(Add, [](double a, double b) { return a + b; }),
    BINARY_CASE(Sub, [](double a, double b) { return a - b; }),
    BINARY_CASE(Mul, [](double a, double b) { return a * b; }),
    BINARY_CASE(
        Maximum,
        [](double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b); }),
    BINARY_CASE(
        Minimum,
        [](double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b); }),
    BINARY_CASE(
        Div, [](double a, double b) { return a / b; }, true),
    BINARY_CASE(
        Pow, [](double a, double b) { return std::pow(a, b); }, true),
    BINARY_CASE(
        Eq, [](double a, double b) { return double(a == b); }, false, true),
    BINARY_CASE(
        Ne, [](double a, double b) { return double(a != b); }, false, true),
    BINARY_CASE(
        Lt, [](double a, double b) { return double(a < b); }, false, true),
    BINARY_CASE(
        Le, [](double a, double b) { return double(a <= b); }, false, true),
    BINARY_CASE(
        Gt, [](double a, double b) { return double(a > b); }, false, true),
    BINARY_CASE(
        Ge, [](double a, double b) { return double(a >= b); }, false, true),
};

/// Small enough that no integer type overflows (a >= b for unsigned differences), with ties.
std::vector<double> Values(DataType dtype, std::int64_t count, bool first) {
  std::vector<double> values = RandomValues(count, first ? 8 : 1, first ? 15 : 8, first ? 1 : 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!IsFloatingPoint(dtype) || i % 3 == 0) values[i] = std::floor(values[i]);
    if (i % 5 == 0) values[i] = 8;
  }
  return values;
}

TEST_P(BinaryTest, MatchesTheReferenceInEveryTypeAndLayout) {
  const Layout pairs[][2] = {{Layout::kContiguous, Layout::kContiguous},
                             {Layout::kContiguous, Layout::kExpanded},
                             {Layout::kTransposed, Layout::kSliced},
                             {Layout::kStepped, Layout::kTransposed}};
  for (const BinaryCase& binary : kCases) {
    for (DataType dtype : kArithmeticTypes) {
      if (binary.floating_only && !IsFloatingPoint(dtype)) continue;
      for (const auto& layouts : pairs) {
        for (const Dims& shape : {Dims{}, Dims{0, 4}, Dims{5, 3}, Dims{2, 3, 530}}) {
          SCOPED_TRACE(binary.name);
          const Tensor a =
              MakeTensor(device(), dtype, shape, Values(dtype, Numel(shape), true), layouts[0]);
          const Tensor b =
              MakeTensor(device(), dtype, shape, Values(dtype, Numel(shape), false), layouts[1]);
          std::vector<double> expected = ToDoubles(a);
          const std::vector<double> second = ToDoubles(b);
          for (std::size_t i = 0; i < expected.size(); ++i)
            expected[i] = binary.reference(expected[i], second[i]);
          Tensor out =
              MakeOutput(device(), binary.predicate ? DataType::kBool : dtype, shape, layouts[0]);
          binary.call(out, a, b);
          ExpectClose(out, expected,
                      {.operations = std::string_view(binary.name) == "Pow" ? 5.0 : 1.0});
          ExpectGapsUntouched(out);
        }
      }
    }
  }
}

TEST_P(BinaryTest, SpecialValuesFollowIeee) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  const std::vector<double> first = {nan, 1, infinity, infinity, -infinity, 0, -1, nan, 0};
  const std::vector<double> second = {1, nan, infinity, -infinity, 2, 0, 0, nan, -0.0};
  for (const BinaryCase& binary : kCases) {
    SCOPED_TRACE(binary.name);
    for (DataType dtype : kFloatingTypes) {
      const Tensor a = MakeTensor(device(), dtype, {9}, first);
      const Tensor b = MakeTensor(device(), dtype, {9}, second);
      std::vector<double> expected;
      for (std::size_t i = 0; i < first.size(); ++i)
        expected.push_back(binary.reference(first[i], second[i]));
      Tensor out = MakeOutput(device(), binary.predicate ? DataType::kBool : dtype, {9});
      binary.call(out, a, b);
      ExpectEqual(out, expected);
    }
  }
}

TEST_P(BinaryTest, BroadcastsAnyDimension) {
  const Dims shape = {3, 70, 130};
  const std::vector<double> values = RandomValues(Numel(shape), -4, 4, 5);
  const Tensor a = MakeTensor(device(), DataType::kFloat32, shape, values);
  const Dims small_shapes[] = {{130}, {70, 1}, {3, 1, 1}, {1}, {3, 1, 130}};
  for (const Dims& small : small_shapes) {
    const Tensor memory =
        MakeTensor(device(), DataType::kFloat32, small, RandomValues(Numel(small), -4, 4, 6));
    Dims strides = Dims::Filled(3, 0);
    for (int d = 0; d < small.size(); ++d)
      strides[3 - small.size() + d] = small[d] == 1 ? 0 : memory.strides()[d];
    const Tensor b = memory.AsStrided(shape, strides, 0);
    std::vector<double> expected = ToDoubles(a);
    const std::vector<double> second = ToDoubles(b);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] *= second[i];
    Tensor out = MakeOutput(device(), DataType::kFloat32, shape);
    Call<op::Mul>(out, a, b);
    ExpectClose(out, expected, {.operations = 0});
  }
}

TEST_P(BinaryTest, BroadcastsRowsOfEveryLength) {
  for (DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (std::int64_t length : kRowLengths) {
      for (Layout layout : {Layout::kContiguous, Layout::kShifted}) {
        const Dims shape = {2, length};
        const Tensor a = MakeTensor(device(), dtype, shape, RandomValues(2 * length, -4, 4, 1));
        const Tensor row =
            MakeTensor(device(), dtype, {1, length}, RandomValues(length, -4, 4, 2), layout);
        const Tensor b = row.AsStrided(shape, {0, 1}, row.offset());
        std::vector<double> expected = ToDoubles(a);
        const std::vector<double> second = ToDoubles(row);
        for (std::size_t i = 0; i < expected.size(); ++i)
          expected[i] *= second[i % static_cast<std::size_t>(length)];
        Tensor out = MakeOutput(device(), dtype, shape);
        Call<op::Mul>(out, a, b);
        ExpectClose(out, expected, {.operations = 0});
      }
    }
  }
}

TEST_P(BinaryTest, IntegersWrap) {
  const Tensor a = MakeTensor(device(), DataType::kInt32, {3}, {INT32_MAX, INT32_MIN, 65536});
  const Tensor b = MakeTensor(device(), DataType::kInt32, {3}, {1, -1, 65536});
  Tensor out = MakeOutput(device(), DataType::kInt32, {3});
  Call<op::Add>(out, a, b);
  EXPECT_EQ(out.ToVector<std::int32_t>(),
            (std::vector<std::int32_t>{INT32_MIN, INT32_MAX, 131072}));
  Call<op::Mul>(out, a, b);
  EXPECT_EQ(out.ToVector<std::int32_t>(), (std::vector<std::int32_t>{INT32_MAX, INT32_MIN, 0}));
  const Tensor narrow = MakeTensor(device(), DataType::kUInt16, {2}, {65535, 3});
  Tensor product = MakeOutput(device(), DataType::kUInt16, {2});
  Call<op::Mul>(product, narrow, narrow);
  EXPECT_EQ(product.ToVector<std::uint16_t>(), (std::vector<std::uint16_t>{1, 9}));
}

struct ScalarCase {
  const char* name;
  void (*call)(Tensor& out, const Tensor& x, Scalar value);
  Reference reference;
  bool floating_only;
};

#define SCALAR_CASE(Name, reference, floating_only)                                      \
  ScalarCase {                                                                           \
#Name, [](Tensor & out, const Tensor& x,                                             \
              Scalar value) { Call<op::Name>(out, x, value); }, reference, floating_only \
  }

const ScalarCase kScalarCases[] = {
    SCALAR_CASE(
        AddScalar, [](double x, double v) { return x + v; }, false),
    SCALAR_CASE(
        MulScalar, [](double x, double v) { return x * v; }, false),
    SCALAR_CASE(
        RsubScalar, [](double x, double v) { return v - x; }, false),
    SCALAR_CASE(
        DivScalar, [](double x, double v) { return x / v; }, true),
    SCALAR_CASE(
        RdivScalar, [](double x, double v) { return v / x; }, true),
    SCALAR_CASE(
        PowScalar, [](double x, double v) { return std::pow(x, v); }, true),
};

TEST_P(BinaryTest, ScalarForms) {
  for (const ScalarCase& scalar : kScalarCases) {
    SCOPED_TRACE(scalar.name);
    for (DataType dtype : kArithmeticTypes) {
      if (scalar.floating_only && !IsFloatingPoint(dtype)) continue;
      for (Layout layout : kAllLayouts) {
        const Dims shape = {4, 601};
        const Tensor x = MakeTensor(device(), dtype, shape, Values(dtype, 2404, false), layout);
        const Scalar number = IsFloatingPoint(dtype) ? Scalar(10.3) : Scalar(10);
        // A float takes part as a float, in half-precision arithmetic too.
        const double value = dtype == DataType::kFloat64 ? number.To<double>() : number.To<float>();
        std::vector<double> expected = ToDoubles(x);
        for (double& element : expected)
          element = scalar.reference(element, value);
        Tensor out = MakeOutput(device(), dtype, shape);
        scalar.call(out, x, number);
        ExpectClose(out, expected,
                    {.operations = std::string_view(scalar.name) == "PowScalar" ? 5.0 : 1.0});
      }
    }
  }
}

TEST_P(BinaryTest, PowScalarAtSpecialExponentsAndValues) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {0.0, -0.0, 2.25, -3, infinity, -infinity, std::nan("")};
  for (double exponent : {2.0, 3.0, -1.0, 0.5, 0.0, 1.0, -2.0, 1.5}) {
    for (DataType dtype : kFloatingTypes) {
      const Tensor x = MakeTensor(device(), dtype, {7}, values);
      std::vector<double> expected;
      for (double value : values)
        expected.push_back(std::pow(value, exponent));
      Tensor out = MakeOutput(device(), dtype, {7});
      Call<op::PowScalar>(out, x, Scalar(exponent));
      SCOPED_TRACE(exponent);
      ExpectClose(out, expected, {.operations = 5});
    }
  }
}

TEST_P(BinaryTest, Clamp) {
  for (DataType dtype : kArithmeticTypes) {
    const Tensor x = MakeTensor(device(), dtype, {5}, {0, 2, 3, 7, 9});
    Tensor out = MakeOutput(device(), dtype, {5});
    Call<op::Clamp>(out, x, Scalar(2), Scalar(7));
    ExpectEqual(out, {2, 2, 3, 7, 7});
  }
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {3}, {std::nan(""), infinity, -5});
  Tensor out = MakeOutput(device(), DataType::kFloat32, {3});
  Call<op::Clamp>(out, x, Scalar(-infinity), Scalar(1.5));
  ExpectEqual(out, {std::nan(""), 1.5, -5});
}

TEST_P(BinaryTest, AddScaledWorksInPlaceAndRoundsOnce) {
  for (DataType dtype : kFloatingTypes) {
    for (Layout layout : kWritableLayouts) {
      const Dims shape = {3, 1100};
      Tensor out = MakeTensor(device(), dtype, shape, RandomValues(3300, -2, 2, 1), layout);
      const Tensor x = MakeTensor(device(), dtype, shape, RandomValues(3300, -2, 2, 2));
      std::vector<double> expected = ToDoubles(out);
      const std::vector<double> second = ToDoubles(x);
      for (std::size_t i = 0; i < expected.size(); ++i)
        expected[i] += second[i] * 0.125;
      Call<op::AddScaled>(out, x, Scalar(0.125));
      ExpectClose(out, expected, {.operations = 1, .scale = 2.25});
      ExpectGapsUntouched(out);
    }
  }
  Tensor integers = MakeTensor(device(), DataType::kInt64, {2}, {1, 2});
  Call<op::AddScaled>(integers, MakeTensor(device(), DataType::kInt64, {2}, {10, 20}), Scalar(3));
  ExpectEqual(integers, {31, 62});
}

TEST_P(BinaryTest, Logic) {
  const Tensor a = MakeTensor(device(), DataType::kBool, {4}, {0, 0, 1, 1});
  const Tensor b = MakeTensor(device(), DataType::kBool, {4}, {0, 1, 0, 1}, Layout::kStepped);
  Tensor out = MakeOutput(device(), DataType::kBool, {4});
  Call<op::LogicalAnd>(out, a, b);
  ExpectEqual(out, {0, 0, 0, 1});
  Call<op::LogicalOr>(out, a, b);
  ExpectEqual(out, {0, 1, 1, 1});
  Call<op::Eq>(out, a, b);
  ExpectEqual(out, {1, 0, 0, 1});
}

TEST_P(BinaryTest, WhereAndMaskedFillTakeEveryType) {
  const Dims shape = {5, 121};
  std::vector<double> mask_values(605);
  std::vector<double> first(605);
  std::vector<double> second(605);
  for (std::size_t i = 0; i < 605; ++i) {
    mask_values[i] = i % 3 == 0;
    first[i] = static_cast<double>(i % 2);
    second[i] = static_cast<double>(i % 5 == 0);
  }
  for (DataType dtype : kAllTypes) {
    for (Layout layout : kAllLayouts) {
      const Tensor mask = MakeTensor(device(), DataType::kBool, shape, mask_values, layout);
      const Tensor a = MakeTensor(device(), dtype, shape, first, Layout::kTransposed);
      const Tensor b = MakeTensor(device(), dtype, shape, second);
      const std::vector<double> chosen = ToDoubles(mask);
      std::vector<double> expected(605);
      std::vector<double> filled(605);
      for (std::size_t i = 0; i < 605; ++i) {
        expected[i] = chosen[i] != 0 ? first[i] : second[i];
        filled[i] = chosen[i] != 0 ? 1 : first[i];
      }
      Tensor out = MakeOutput(device(), dtype, shape, Layout::kSliced);
      Call<op::Where>(out, mask, a, b);
      ExpectEqual(out, expected);
      Call<op::MaskedFill>(out, a, mask, Scalar(1));
      ExpectEqual(out, filled);
      ExpectGapsUntouched(out);
    }
  }
}

TEST_P(BinaryTest, TypesThatDoNotFitAreNamed) {
  const Tensor flags = MakeTensor(device(), DataType::kBool, {2}, {1, 0});
  Tensor out = MakeOutput(device(), DataType::kBool, {2});
  EXPECT_THAT([&] { Call<op::Add>(out, flags, flags); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("bool")));
  const Tensor floats = MakeTensor(device(), DataType::kFloat32, {2}, {1, 0});
  const Tensor doubles = MakeTensor(device(), DataType::kFloat64, {2}, {1, 0});
  Tensor sum = MakeOutput(device(), DataType::kFloat32, {2});
  EXPECT_THROW(Call<op::Add>(sum, floats, doubles), Error);
  EXPECT_THROW(Call<op::Lt>(sum, floats, floats), Error);
  EXPECT_THROW(Call<op::Where>(sum, flags, floats, doubles), Error);
}

}  // namespace
}  // namespace infini_train::test
