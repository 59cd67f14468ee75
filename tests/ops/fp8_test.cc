// The FP8 ops against their definitions.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/fp8.h"
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

constexpr Fp8Format kFormats[] = {Fp8Format::kE4M3, Fp8Format::kE5M2};

std::uint8_t CodeOf(Fp8Format format, double value) {
  return DispatchFp8(format, [&](auto tag) {
    return typename decltype(tag)::type(static_cast<float>(value)).bits;
  });
}

double NumberOf(Fp8Format format, double code) {
  return DispatchFp8(format, [&](auto tag) {
    typename decltype(tag)::type value;
    value.bits = static_cast<std::uint8_t>(code);
    return static_cast<double>(static_cast<float>(value));
  });
}

class Fp8OpTest : public DeviceTest {
 protected:
  static Tensor Scale(double scale) {
    return MakeTensor(device(), DataType::kFloat32, {2}, {1 / scale, scale});
  }
  static Tensor Codes(const Dims& shape, Fp8Format format, std::uint64_t seed,
                      Layout layout = Layout::kContiguous) {
    std::vector<double> values = RandomValues(Numel(shape), -8, 8, seed);
    for (double& value : values)
      value = CodeOf(format, value);
    return MakeTensor(device(), DataType::kUInt8, shape, values, layout);
  }
};

struct Quantized {
  Tensor out, transposed, column_sums, amax;
};

/// Checks all outputs against the numbers that are quantised.
void Check(const Quantized& actual, const Tensor& numbers, double scale, Fp8Format format,
           double former_amax) {
  const std::int64_t rows = numbers.size(0), columns = numbers.size(1);
  const std::vector<double> values = ToDoubles(numbers);
  std::vector<double> codes(values.size()), transposed(values.size());
  std::vector<double> sums(static_cast<std::size_t>(columns)), magnitudes(sums);
  double amax = former_amax;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    codes[i] = CodeOf(format, values[i] * scale);
    transposed[i % columns * rows + i / columns] = codes[i];
    sums[i % columns] += values[i];
    magnitudes[i % columns] += std::fabs(values[i]);
    amax = std::fmax(amax, std::fabs(values[i]));
  }
  ExpectEqual(actual.out, codes);
  ExpectEqual(actual.transposed, transposed);
  ExpectEqual(actual.amax, {static_cast<double>(static_cast<float>(amax))});
  if (actual.column_sums.defined()) {
    ExpectClose(actual.column_sums, sums, {.operations = static_cast<double>(rows)}, magnitudes);
  }
  ExpectGapsUntouched(actual.out);
  ExpectGapsUntouched(actual.transposed);
}

/// Checks what is made of a function whose results may be rounded otherwise, or not before they are
/// quantised: few numbers differ, and by no more than a step of the format.
void CheckFunction(const Quantized& actual, const Tensor& numbers, double scale, Fp8Format format) {
  const std::int64_t rows = numbers.size(0), columns = numbers.size(1);
  const std::vector<double> values = ToDoubles(numbers), codes = ToDoubles(actual.out);
  std::vector<double> transposed(values.size());
  const double step = format == Fp8Format::kE4M3 ? 0.125 : 0.25;
  double amax = 0.25;
  int others = 0;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const std::uint8_t expected = CodeOf(format, values[i] * scale);
    transposed[i % columns * rows + i / columns] = codes[i];
    amax = std::fmax(amax, std::fabs(values[i]));
    if (codes[i] == expected) continue;
    ++others;
    const double number = NumberOf(format, expected);
    EXPECT_NEAR(NumberOf(format, codes[i]), number, std::fmax(step * std::fabs(number), 0.0625));
  }
  EXPECT_LE(others, rows * columns / 20);
  ExpectEqual(actual.transposed, transposed);
  EXPECT_NEAR(actual.amax.Item(), amax, 0.01 * amax);
}

Quantized MakeOutputs(Device device, const Dims& shape, DataType sums, Layout layout) {
  return {MakeOutput(device, DataType::kUInt8, shape, layout),
          MakeOutput(device, DataType::kUInt8, {shape[1], shape[0]}, layout),
          MakeOutput(device, sums, {shape[1]}), MakeTensor(device, DataType::kFloat32, {}, {0.25})};
}

// Within and across tiles, wide accesses and narrow ones.
const Dims kShapes[] = {{1, 1}, {3, 5}, {16, 8}, {64, 96}, {129, 65}, {144, 200}, {250, 24}};

TEST_P(Fp8OpTest, QuantizesInBothLayouts) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const Dims& shape : kShapes) {
      for (const Layout layout : {Layout::kContiguous, Layout::kShifted}) {
        for (const Fp8Format format : kFormats) {
          SCOPED_TRACE(std::string(ToString(dtype)) + " " + shape.ToString());
          // Some of the numbers are too large for the format, and some too small.
          const Tensor x =
              MakeTensor(device(), dtype, shape, RandomValues(Numel(shape), -8, 8, 1), layout);
          const double scale = format == Fp8Format::kE4M3 ? 64 : 8192;
          for (const DataType sums : {DataType::kFloat32, dtype}) {
            Quantized result = MakeOutputs(device(), shape, sums, layout);
            Call<op::Fp8Quantize>(result.out, result.transposed, result.column_sums, result.amax, x,
                                  Scale(scale), format);
            Check(result, x, scale, format, 0.25);
          }
        }
      }
    }
  }
}

TEST_P(Fp8OpTest, EveryOutputIsOptional) {
  const Tensor x =
      MakeTensor(device(), DataType::kBFloat16, {48, 80}, RandomValues(3840, -8, 8, 1));
  const auto run = [&](bool out, bool transposed, bool sums, bool amax) {
    Quantized result = MakeOutputs(device(), x.shape(), DataType::kFloat32, {});
    if (!out) result.out = Tensor();
    if (!transposed) result.transposed = Tensor();
    if (!sums) result.column_sums = Tensor();
    if (!amax) result.amax = Tensor();
    Call<op::Fp8Quantize>(result.out, result.transposed, result.column_sums, result.amax, x,
                          Scale(4), Fp8Format::kE4M3);
    return result;
  };
  const Quantized all = run(true, true, true, true);
  ExpectSameBits(run(true, false, false, false).out, all.out);
  ExpectSameBits(run(false, true, false, false).transposed, all.transposed);
  ExpectSameBits(run(false, false, true, false).column_sums, all.column_sums);
  ExpectSameBits(run(false, false, false, true).amax, all.amax);
}

TEST_P(Fp8OpTest, AmaxKeepsWhatIsLargerAndNan) {
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {2, 2}, {1, -3, 2, 0});
  Tensor none;
  Tensor amax = MakeTensor(device(), DataType::kFloat32, {}, {5});
  Call<op::Fp8Quantize>(none, none, none, amax, x, Scale(1), Fp8Format::kE4M3);
  ExpectEqual(amax, {5});
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor broken =
      MakeTensor(device(), DataType::kFloat32, {2, 2}, {1, kInfinity, kNan, -kInfinity});
  Tensor out = MakeOutput(device(), DataType::kUInt8, {2, 2});
  Call<op::Fp8Quantize>(out, none, none, amax, broken, Scale(1), Fp8Format::kE4M3);
  ExpectEqual(amax, {kNan});
  ExpectEqual(out, {0x38, 0x7E, 0x7F, 0xFE});
  Call<op::Fp8Quantize>(none, none, none, amax, x, Scale(1), Fp8Format::kE4M3);
  ExpectEqual(amax, {kNan});
}

TEST_P(Fp8OpTest, NothingQuantizesToNothing) {
  for (const Dims& shape : {Dims{0, 5}, Dims{5, 0}}) {
    const Tensor x = MakeTensor(device(), DataType::kFloat32, shape, {});
    Quantized result = MakeOutputs(device(), shape, DataType::kFloat32, {});
    Call<op::Fp8Quantize>(result.out, result.transposed, result.column_sums, result.amax, x,
                          Scale(1), Fp8Format::kE4M3);
    Check(result, x, 1, Fp8Format::kE4M3, 0.25);
  }
}

// More tiles than the kernel has blocks.
TEST_P(Fp8OpTest, ManyTiles) {
  const Dims shape = {128 * 4100, 1};
  const Tensor x =
      MakeTensor(device(), DataType::kFloat32, shape, RandomValues(shape[0], -8, 8, 1));
  Quantized result = MakeOutputs(device(), shape, DataType::kFloat32, {});
  Call<op::Fp8Quantize>(result.out, result.transposed, result.column_sums, result.amax, x, Scale(2),
                        Fp8Format::kE5M2);
  Check(result, x, 2, Fp8Format::kE5M2, 0.25);
}

TEST_P(Fp8OpTest, QuantizesGeluAsGeluThenQuantize) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const Dims& shape : {Dims{33, 17}, Dims{144, 72}}) {
      for (const bool tanh_approximation : {false, true}) {
        SCOPED_TRACE(std::string(ToString(dtype)) + " " + shape.ToString());
        const Tensor x = MakeTensor(device(), dtype, shape, RandomValues(Numel(shape), -4, 4, 1));
        const Tensor grad_y =
            MakeTensor(device(), dtype, shape, RandomValues(Numel(shape), -2, 2, 2));
        Tensor plain = MakeOutput(device(), dtype, shape);
        Call<op::Gelu>(plain, x, tanh_approximation);
        Quantized result = MakeOutputs(device(), shape, DataType::kFloat32, {});
        Call<op::Fp8QuantizeGelu>(result.out, result.transposed, result.amax, x, Scale(32),
                                  Fp8Format::kE4M3, tanh_approximation);
        result.column_sums = Tensor();
        if (SizeOf(dtype) == 2) {
          CheckFunction(result, plain, 32, Fp8Format::kE4M3);
        } else {
          Check(result, plain, 32, Fp8Format::kE4M3, 0.25);
        }

        Call<op::GeluBackward>(plain, grad_y, x, tanh_approximation);
        result = MakeOutputs(device(), shape, dtype, {});
        Call<op::Fp8QuantizeGeluBackward>(result.out, result.transposed, result.column_sums,
                                          result.amax, grad_y, x, Scale(1024), Fp8Format::kE5M2,
                                          tanh_approximation);
        if (SizeOf(dtype) == 2) {
          CheckFunction(result, plain, 1024, Fp8Format::kE5M2);
        } else {
          Check(result, plain, 1024, Fp8Format::kE5M2, 0.25);
        }
      }
    }
  }
}

TEST_P(Fp8OpTest, GemmOfEveryPairOfFormats) {
  for (const Dims& shape : {Dims{1, 1, 1}, Dims{5, 7, 3}, Dims{48, 32, 64}, Dims{33, 80, 200}}) {
    const std::int64_t m = shape[0], n = shape[1], k = shape[2];
    for (const Fp8Format a_format : kFormats) {
      for (const Fp8Format b_format : kFormats) {
        for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat32}) {
          for (const bool extra : {false, true}) {
            SCOPED_TRACE(shape.ToString() + " " + std::string(ToString(dtype)));
            const Tensor a = Codes({m, k}, a_format, 1);
            const Tensor b = Codes({n, k}, b_format, 2, extra ? Layout::kShifted : Layout{});
            const Tensor bias =
                extra ? MakeTensor(device(), DataType::kBFloat16, {n}, RandomValues(n, -1, 1, 3))
                      : Tensor();
            Tensor out = extra ? MakeTensor(device(), dtype, {m, n}, RandomValues(m * n, -1, 1, 4))
                               : MakeOutput(device(), dtype, {m, n});
            std::vector<double> expected = extra ? ToDoubles(out) : std::vector<double>(m * n);
            std::vector<double> magnitudes;
            const std::vector<double> left = ToDoubles(a), right = ToDoubles(b);
            const std::vector<double> biases = extra ? ToDoubles(bias) : std::vector<double>(n);
            for (std::int64_t i = 0; i < m * n; ++i) {
              double magnitude = std::fabs(expected[i]) + std::fabs(biases[i % n]);
              expected[i] += biases[i % n];
              for (std::int64_t x = 0; x < k; ++x) {
                const double term = NumberOf(a_format, left[i / n * k + x]) *
                                    NumberOf(b_format, right[i % n * k + x]) / (4 * 0.5);
                expected[i] += term;
                magnitude += std::fabs(term);
              }
              magnitudes.push_back(magnitude);
            }
            Call<op::Fp8Gemm>(out, a, a_format, Scale(4), b, b_format, Scale(0.5), bias, extra);
            // Chips keep 13 bits and more of a sum of such products.
            ExpectClose(out, expected, {.operations = static_cast<double>(k) + 4096}, magnitudes);
          }
        }
      }
    }
  }
}

TEST_P(Fp8OpTest, ScalesFollowTheLargestOfTheHistory) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Tensor scales = MakeTensor(device(), DataType::kFloat32, {4, 2}, {1, 1, 1, 1, 0.125, 8, 1, 1});
  Tensor amax = MakeTensor(device(), DataType::kFloat32, {4}, {3, 1000, 0, kNan});
  Tensor history =
      MakeTensor(device(), DataType::kFloat32, {4, 3}, {7, 1, 9, 2, 3, 4, 0, 0, 5, 1, 2, 3});
  const Tensor largest = MakeTensor(device(), DataType::kFloat32, {4}, {448, 57344, 448, 448});
  Call<op::Fp8UpdateScales>(scales, amax, history, largest);
  ExpectEqual(history, {3, 7, 1, 1000, 2, 3, 0, 0, 0, 0, 1, 2});
  ExpectEqual(amax, {0, 0, 0, 0});
  ExpectEqual(scales, {1. / 32, 32, 1. / 16, 16, 0.125, 8, 1. / 64, 64});

  amax = MakeTensor(device(), DataType::kFloat32, {4}, {1, 1, kInfinity, 1});
  Call<op::Fp8UpdateScales>(scales, amax, history, largest);
  ExpectEqual(history, {1, 3, 7, 1, 1000, 2, 0, 0, 0, 1, 0, 1});
  ExpectEqual(scales, {1. / 32, 32, 1. / 16, 16, 0.125, 8, 1. / 128, 128});
}

// As many as a model has, and a row on its own.
TEST_P(Fp8OpTest, ScalesOfManyTensors) {
  constexpr std::int64_t kCount = 300, kLength = 16;
  const std::vector<double> newest = RandomValues(kCount, 0.1, 100, 1);
  const std::vector<double> values = RandomValues(kCount * kLength, 0.1, 100, 2);
  Tensor scales = MakeOutput(device(), DataType::kFloat32, {kCount, 2});
  Tensor amax = MakeTensor(device(), DataType::kFloat32, {kCount}, newest);
  Tensor history = MakeTensor(device(), DataType::kFloat32, {kCount, kLength}, values);
  const Tensor largest =
      MakeTensor(device(), DataType::kFloat32, {kCount}, std::vector<double>(kCount, 448.0));
  std::vector<double> expected;
  const std::vector<double> rows = ToDoubles(history), maxima = ToDoubles(amax);
  for (std::int64_t t = 0; t < kCount; ++t) {
    double most = maxima[t];
    for (std::int64_t i = 0; i < kLength - 1; ++i)
      most = std::fmax(most, rows[t * kLength + i]);
    const double scale = std::exp2(std::floor(std::log2(448 / (2 * most))));
    expected.push_back(1 / scale);
    expected.push_back(scale);
  }
  Call<op::Fp8UpdateScales>(scales, amax, history, largest);
  ExpectEqual(scales, expected);
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Fp8OpTest);

}  // namespace
}  // namespace infini_train
