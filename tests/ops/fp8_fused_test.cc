// FP8 ops that are fused with others, against the compositions that define them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/fp8.h"
#include "infini_train/ops/fp8_composition.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::ExpectEqual;
using test::ExpectGapsUntouched;
using test::ExpectSameBits;
using test::Layout;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;

constexpr Fp8Format kE4M3 = Fp8Format::kE4M3;

Tensor ScaleOn(Device device, double scale) {
  return MakeTensor(device, DataType::kFloat32, {2}, {1 / scale, scale});
}

class Fp8QuantizeNormTest : public DeviceTest {
 protected:
  struct Result {
    Tensor out, transposed, amax, sum, mean, rstd;
  };

  static DataType StatType(DataType dtype) {
    return dtype == DataType::kFloat64 ? dtype : DataType::kFloat32;
  }
  static Result MakeResult(const Dims& shape, DataType dtype, bool centered, bool adds,
                           Layout layout = Layout::kContiguous) {
    const DataType stat = StatType(dtype);
    return {MakeOutput(device(), DataType::kUInt8, shape, layout),
            MakeOutput(device(), DataType::kUInt8, {shape[1], shape[0]}, layout),
            MakeTensor(device(), DataType::kFloat32, {}, {0.25}),
            adds ? MakeOutput(device(), dtype, shape, layout) : Tensor(),
            centered ? MakeOutput(device(), stat, {shape[0]}) : Tensor(),
            MakeOutput(device(), stat, {shape[0]})};
  }
};

/// Few numbers are rounded otherwise, and by no more than a step.
void ExpectNearCodes(const Tensor& actual, const Tensor& expected) {
  const auto number = [](double code) {
    Float8E4M3 value;
    value.bits = static_cast<std::uint8_t>(code);
    return static_cast<double>(static_cast<float>(value));
  };
  const std::vector<double> a = ToDoubles(actual), b = ToDoubles(expected);
  ASSERT_EQ(a.size(), b.size());
  std::size_t others = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    others += a[i] == b[i] ? 0 : 1;
    const double wanted = number(b[i]);
    EXPECT_NEAR(number(a[i]), wanted, std::fmax(0.125 * std::fabs(wanted), 0x1p-9)) << i;
  }
  EXPECT_LE(others, a.size() / 20);
}

struct Shape {
  std::int64_t rows, hidden;
};
// Tiles and their ends, wide accesses and narrow ones, rows in registers and longer ones.
constexpr Shape kShapes[] = {{1, 1},   {3, 31},   {5, 32},   {16, 64},   {33, 72},
                             {70, 33}, {64, 520}, {17, 768}, {16, 1040}, {2, 8200}};

TEST_P(Fp8QuantizeNormTest, IsTheQuantizedNorm) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const DataType weight_dtype : {dtype, DataType::kFloat32}) {
      if (dtype == DataType::kFloat64 && weight_dtype != dtype) continue;
      // The wide and the narrow types take the composition.
      const bool is_fused = dtype == DataType::kFloat32 || dtype == DataType::kBFloat16;
      for (const Shape& size : std::span(kShapes).first(is_fused ? std::size(kShapes) : 4)) {
        for (const int kind : {0, 1, 2, 3}) {
          const bool centered = kind % 2 == 0, adds = kind / 2 == 0;
          const Layout layout = size.rows % 2 == 0 ? Layout::kContiguous : Layout::kShifted;
          SCOPED_TRACE(testing::Message()
                       << ToString(dtype) << " with " << ToString(weight_dtype) << " weights, "
                       << size.rows << " x " << size.hidden << " kind " << kind);
          const Dims shape = {size.rows, size.hidden};
          const auto make = [&](DataType type, const Dims& dims, std::uint64_t seed) {
            return MakeTensor(device(), type, dims, RandomValues(Numel(dims), -2, 3, seed), layout);
          };
          const Tensor x = make(dtype, shape, 1);
          const Tensor residual = adds ? make(dtype, shape, 2) : Tensor();
          const Tensor weight = make(weight_dtype, {size.hidden}, 3);
          const Tensor bias = centered ? make(weight_dtype, {size.hidden}, 4) : Tensor();
          const Tensor scale = ScaleOn(device(), 32);
          Result actual = MakeResult(shape, dtype, centered, adds, layout);
          Result expected = MakeResult(shape, dtype, centered, adds);
          Call<op::Fp8QuantizeNorm>(actual.out, actual.transposed, actual.amax, actual.sum,
                                    actual.mean, actual.rstd, x, residual, weight, bias, scale,
                                    kE4M3, 1e-3);
          ComposeFp8QuantizeNorm(expected.out, expected.transposed, expected.amax, expected.sum,
                                 expected.mean, expected.rstd, x, residual, weight, bias, scale,
                                 kE4M3, 1e-3);
          ExpectNearCodes(actual.out, expected.out);
          if (adds) ExpectSameBits(actual.sum, expected.sum);
          const test::Tolerance statistics{.operations = 200, .scale = 100};
          if (centered) ExpectClose(actual.mean, ToDoubles(expected.mean), statistics);
          ExpectClose(actual.rstd, ToDoubles(expected.rstd), statistics);
          EXPECT_NEAR(actual.amax.Item(), expected.amax.Item(), 0.01 * expected.amax.Item());
          // The copy for the other product is of the same codes.
          const std::vector<double> codes = ToDoubles(actual.out);
          std::vector<double> transposed(codes.size());
          for (std::int64_t i = 0; i < Numel(shape); ++i)
            transposed[i % size.hidden * size.rows + i / size.hidden] = codes[i];
          ExpectEqual(actual.transposed, transposed);
          ExpectGapsUntouched(actual.out);
          ExpectGapsUntouched(actual.transposed);
          if (adds) ExpectGapsUntouched(actual.sum);
        }
      }
    }
  }
}

TEST_P(Fp8QuantizeNormTest, CodesAndAmaxAreOptional) {
  const Dims shape = {48, 96};
  const Tensor x =
      MakeTensor(device(), DataType::kBFloat16, shape, RandomValues(Numel(shape), -8, 8, 1));
  const auto run = [&](bool out, bool transposed, bool amax, bool parameters) {
    Result result = MakeResult(shape, DataType::kBFloat16, true, false);
    if (!out) result.out = Tensor();
    if (!transposed) result.transposed = Tensor();
    if (!amax) result.amax = Tensor();
    const Tensor weight =
        parameters ? MakeTensor(device(), DataType::kFloat32, {96}, std::vector<double>(96, 1))
                   : Tensor();
    Call<op::Fp8QuantizeNorm>(result.out, result.transposed, result.amax, result.sum, result.mean,
                              result.rstd, x, Tensor(), weight, Tensor(), ScaleOn(device(), 64),
                              kE4M3, 1e-5);
    return result;
  };
  const Result all = run(true, true, true, true);
  ExpectSameBits(run(true, false, false, true).out, all.out);
  ExpectSameBits(run(false, true, false, false).transposed, all.transposed);
  ExpectSameBits(run(false, false, true, false).amax, all.amax);
  ExpectSameBits(run(false, false, true, true).rstd, all.rstd);
}

TEST_P(Fp8QuantizeNormTest, NanIsKept) {
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {2, 2},
                              {1, 2, std::numeric_limits<double>::quiet_NaN(), 0});
  Result result = MakeResult({2, 2}, DataType::kFloat32, true, false);
  Call<op::Fp8QuantizeNorm>(result.out, result.transposed, result.amax, result.sum, result.mean,
                            result.rstd, x, Tensor(), Tensor(), Tensor(), ScaleOn(device(), 1),
                            kE4M3, 0.0);
  ExpectEqual(result.out, {0xB8, 0x38, 0x7F, 0x7F});
  EXPECT_TRUE(std::isnan(result.amax.Item()));
}

TEST_P(Fp8QuantizeNormTest, NothingGivesNothing) {
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {0, 8}, {});
  Result result = MakeResult({0, 8}, DataType::kFloat32, true, true);
  Call<op::Fp8QuantizeNorm>(result.out, result.transposed, result.amax, result.sum, result.mean,
                            result.rstd, x, x, Tensor(), Tensor(), ScaleOn(device(), 1), kE4M3,
                            1e-5);
  ExpectEqual(result.amax, {0.25});
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Fp8QuantizeNormTest);

constexpr std::int64_t kIgnore = -100;

class Fp8LinearCrossEntropyTest : public DeviceTest {
 protected:
  struct Result {
    Tensor loss, grad_hidden, grad_weight, amax;
  };

  struct Problem {
    Problem(DataType dtype, std::int64_t tokens, std::int64_t vocab_size, std::int64_t width)
        : hidden(
              MakeTensor(device(), dtype, {tokens, width}, RandomValues(tokens * width, -1, 1, 1))),
          weight(MakeTensor(device(), dtype, {vocab_size, width},
                            RandomValues(vocab_size * width, -1, 1, 2))),
          weight_codes(MakeOutput(device(), DataType::kUInt8, {width, vocab_size})) {
      std::vector<double> classes;
      for (std::int64_t i = 0; i < tokens; ++i)
        classes.push_back(static_cast<double>(i % 5 == 4 ? kIgnore : (i * 7 + 3) % vocab_size));
      targets = MakeTensor(device(), DataType::kInt64, {tokens}, classes);
      Tensor none;
      Call<op::Fp8Quantize>(none, weight_codes, none, none, weight, weight_scale, kE4M3);
    }
    DataType dtype() const { return hidden.dtype(); }

    Result Run(double factor, bool with_hidden, bool with_weight,
               DataType weight_grad_type = DataType::kFloat32) const {
      Result result;
      result.loss = MakeOutput(device(), DataType::kFloat32, {});
      if (with_hidden) result.grad_hidden = MakeOutput(device(), dtype(), hidden.shape());
      if (with_weight) result.grad_weight = MakeOutput(device(), weight_grad_type, weight.shape());
      result.amax = MakeTensor(device(), DataType::kFloat32, {}, {0.125});
      Call<op::Fp8LinearCrossEntropy>(result.loss, result.grad_hidden, result.grad_weight,
                                      result.amax, hidden, weight, targets, hidden_scale,
                                      weight_codes, weight_scale, kIgnore, factor);
      return result;
    }
    Result Exact(double factor) const {
      Result result{MakeOutput(device(), DataType::kFloat32, {}),
                    MakeOutput(device(), dtype(), hidden.shape()),
                    MakeOutput(device(), DataType::kFloat32, weight.shape()),
                    {}};
      Call<op::LinearCrossEntropy>(result.loss, result.grad_hidden, result.grad_weight, hidden,
                                   weight, targets, kIgnore, factor);
      return result;
    }

    Tensor hidden, weight, weight_codes, targets;
    Tensor hidden_scale = ScaleOn(device(), 128), weight_scale = ScaleOn(device(), 256);
  };

  /// Distance in units of the second's length.
  static double Distance(const Tensor& actual, const Tensor& expected) {
    const std::vector<double> a = ToDoubles(actual), b = ToDoubles(expected);
    double distance = 0, length = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      distance += (a[i] - b[i]) * (a[i] - b[i]);
      length += b[i] * b[i];
    }
    return std::sqrt(distance / length);
  }
};

// E5M2 is off by an eighth of a number at most, E4M3 by a sixteenth, and the sums are of few terms.
TEST_P(Fp8LinearCrossEntropyTest, IsLinearCrossEntropyUpToTheFormatsErrors) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const Dims& size : {Dims{5, 11, 8}, Dims{70, 130, 33}, Dims{64, 144, 48}}) {
      for (const double factor : {1.0 / static_cast<double>(size[0]), -3.5, 1e-30}) {
        SCOPED_TRACE(std::string(ToString(dtype)) + " " + size.ToString() + " " +
                     std::to_string(factor));
        const Problem problem(dtype, size[0], size[1], size[2]);
        const Result expected = problem.Exact(factor);
        const Result actual = problem.Run(factor, true, true);
        const double exact = expected.loss.Item();
        EXPECT_NEAR(actual.loss.Item(), exact,
                    std::fabs(exact) * (dtype == DataType::kFloat32 ? 1e-5 : 1e-2));
        EXPECT_LT(Distance(actual.grad_hidden, expected.grad_hidden), 0.1);
        EXPECT_LT(Distance(actual.grad_weight, expected.grad_weight), 0.1);
        const Result rounded = problem.Run(factor, true, true, dtype);
        EXPECT_LT(Distance(rounded.grad_weight, actual.grad_weight), 0x1p-8);
      }
    }
  }
}

TEST_P(Fp8LinearCrossEntropyTest, EachGradientIsOptional) {
  const Problem problem(DataType::kBFloat16, 48, 64, 32);
  const Result all = problem.Run(0.25, true, true);
  const Result hidden = problem.Run(0.25, true, false), weight = problem.Run(0.25, false, true);
  ExpectSameBits(hidden.grad_hidden, all.grad_hidden);
  ExpectSameBits(weight.grad_weight, all.grad_weight);
  ExpectSameBits(weight.amax, all.amax);
  ExpectEqual(hidden.amax, {0.125});
  const Result loss = problem.Run(0.25, false, false);
  ExpectSameBits(loss.loss, all.loss);
}

TEST_P(Fp8LinearCrossEntropyTest, MagnitudesOfHiddenAreRecorded) {
  Problem problem(DataType::kFloat32, 10, 16, 8);
  std::vector<double> values = ToDoubles(problem.hidden);
  double amax = 0.125;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool counts = i / 8 % 5 != 4;
    if (counts) amax = std::fmax(amax, std::fabs(values[i]));
    // What is ignored is not looked at.
    if (!counts) values[i] = std::numeric_limits<double>::quiet_NaN();
  }
  problem.hidden = MakeTensor(device(), DataType::kFloat32, {10, 8}, values);
  const Result result = problem.Run(1, true, true);
  ExpectEqual(result.amax, {amax});
  EXPECT_TRUE(std::isfinite(result.loss.Item()));
  const std::vector<double> grads = ToDoubles(result.grad_hidden);
  for (std::size_t i = 0; i < grads.size(); ++i) {
    EXPECT_TRUE(std::isfinite(grads[i]));
    if (i / 8 % 5 == 4) {
      EXPECT_EQ(grads[i], 0);
    }
  }
  for (const double value : ToDoubles(result.grad_weight))
    EXPECT_TRUE(std::isfinite(value));
}

// More rows than whose logits are held at once.
TEST_P(Fp8LinearCrossEntropyTest, SeveralChunks) {
  const Problem problem(DataType::kBFloat16, 16500, 16, 3);
  const Result expected = problem.Exact(1.0 / 64);
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    const Result actual = problem.Run(1.0 / 64, true, true, dtype);
    EXPECT_NEAR(actual.loss.Item(), expected.loss.Item(), 1e-2 * expected.loss.Item());
    EXPECT_LT(Distance(actual.grad_hidden, expected.grad_hidden), 0.1);
    EXPECT_LT(Distance(actual.grad_weight, expected.grad_weight), 0.1);
  }
}

TEST_P(Fp8LinearCrossEntropyTest, NothingToPredictGivesZero) {
  for (const std::int64_t tokens : {0, 3}) {
    Problem problem(DataType::kFloat32, tokens, 16, 4);
    problem.targets = MakeTensor(device(), DataType::kInt32, {tokens},
                                 std::vector<double>(static_cast<std::size_t>(tokens), kIgnore));
    const Result actual = problem.Run(1, true, true);
    EXPECT_EQ(actual.loss.Item(), 0.0);
    ExpectEqual(actual.grad_hidden, std::vector<double>(static_cast<std::size_t>(tokens * 4), 0));
    ExpectEqual(actual.grad_weight, std::vector<double>(64, 0));
  }
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Fp8LinearCrossEntropyTest);

}  // namespace
}  // namespace infini_train
