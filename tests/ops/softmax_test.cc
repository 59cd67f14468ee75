#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::ExpectEqual;
using test::ExpectSameBits;
using test::kFloatingTypes;
using test::kManyRows;
using test::kRowLengths;
using test::Layout;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One element, odd sizes, many short rows, rows of several blocks of a sum, no rows, no dimensions.
const Dims kShapes[] = {{1, 1}, {3, 7}, {2, 3, 33}, {300, 8}, {2, 2100}, {0, 5}, {4, 0}, {}};

/// exp and log count as 4 operations; sums are of at most 64 terms by lanes.
constexpr double kOperations = 80;

/// Calls `body(row, size)` for the first element of each row.
template <typename Body>
void ForEachRow(const Dims& shape, const Body& body) {
  const std::int64_t size = shape.empty() ? 1 : shape.back();
  for (std::int64_t begin = 0; begin < Numel(shape); begin += size)
    body(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
}

/// ln(sum of e^x) of a row of finite numbers.
double LogSumExp(const double* x, std::size_t size) {
  double largest = -kInfinity;
  for (std::size_t i = 0; i < size; ++i)
    largest = std::fmax(largest, x[i]);
  long double sum = 0;
  for (std::size_t i = 0; i < size; ++i)
    sum += std::exp(x[i] - largest);
  return largest + static_cast<double>(std::log(sum));
}

class SoftmaxTest : public DeviceTest {
 protected:
  template <typename Body>
  static void ForEachCase(const Body& body) {
    for (const DataType dtype : kFloatingTypes) {
      for (const Dims& shape : kShapes) {
        SCOPED_TRACE(testing::Message() << ToString(dtype) << " " << shape.ToString());
        body(dtype, shape);
      }
    }
  }

  static Tensor Random(DataType dtype, const Dims& shape, double low, double high,
                       std::uint64_t seed) {
    return MakeTensor(device(), dtype, shape, RandomValues(Numel(shape), low, high, seed));
  }
};

TEST_P(SoftmaxTest, Softmax) {
  ForEachCase([](DataType dtype, const Dims& shape) {
    const Tensor x = Random(dtype, shape, -9, 9, 1);
    const std::vector<double> values = ToDoubles(x);
    std::vector<double> expected;
    ForEachRow(shape, [&](std::size_t begin, std::size_t size) {
      const double lse = LogSumExp(&values[begin], size);
      for (std::size_t i = begin; i < begin + size; ++i)
        expected.push_back(std::exp(values[i] - lse));
    });
    Tensor out = MakeOutput(device(), dtype, shape);
    Call<op::Softmax>(out, x);
    ExpectClose(out, expected, {.operations = kOperations});
    Tensor in_place = x;
    Call<op::Softmax>(in_place, in_place);
    ExpectSameBits(in_place, out);
  });
}

TEST_P(SoftmaxTest, LogSoftmax) {
  ForEachCase([](DataType dtype, const Dims& shape) {
    const Tensor x = Random(dtype, shape, -9, 9, 1);
    const std::vector<double> values = ToDoubles(x);
    std::vector<double> expected;
    ForEachRow(shape, [&](std::size_t begin, std::size_t size) {
      const double lse = LogSumExp(&values[begin], size);
      for (std::size_t i = begin; i < begin + size; ++i)
        expected.push_back(values[i] - lse);
    });
    Tensor out = MakeOutput(device(), dtype, shape);
    Call<op::LogSoftmax>(out, x);
    ExpectClose(out, expected, {.operations = kOperations, .scale = 18});
  });
}

TEST_P(SoftmaxTest, SoftmaxBackward) {
  ForEachCase([](DataType dtype, const Dims& shape) {
    const Tensor y = Random(dtype, shape, 0, 1, 2);
    const Tensor grad_y = Random(dtype, shape, -1, 1, 3);
    const std::vector<double> ys = ToDoubles(y);
    const std::vector<double> grads = ToDoubles(grad_y);
    std::vector<double> expected;
    std::vector<double> scales;
    ForEachRow(shape, [&](std::size_t begin, std::size_t size) {
      long double dot = 0;
      double magnitude = 0;
      for (std::size_t i = begin; i < begin + size; ++i) {
        dot += ys[i] * grads[i];
        magnitude += std::fabs(ys[i] * grads[i]);
      }
      for (std::size_t i = begin; i < begin + size; ++i) {
        expected.push_back(ys[i] * (grads[i] - static_cast<double>(dot)));
        scales.push_back(ys[i] * (1 + magnitude));
      }
    });
    Tensor grad_x = MakeOutput(device(), dtype, shape);
    Call<op::SoftmaxBackward>(grad_x, grad_y, y);
    ExpectClose(grad_x, expected, {.operations = kOperations}, scales);
  });
}

TEST_P(SoftmaxTest, LogSoftmaxBackward) {
  ForEachCase([](DataType dtype, const Dims& shape) {
    const Tensor y = Random(dtype, shape, -9, 0, 4);
    const Tensor grad_y = Random(dtype, shape, -1, 1, 5);
    const std::vector<double> ys = ToDoubles(y);
    const std::vector<double> grads = ToDoubles(grad_y);
    std::vector<double> expected;
    std::vector<double> scales;
    ForEachRow(shape, [&](std::size_t begin, std::size_t size) {
      long double sum = 0;
      double magnitude = 0;
      for (std::size_t i = begin; i < begin + size; ++i) {
        sum += grads[i];
        magnitude += std::fabs(grads[i]);
      }
      for (std::size_t i = begin; i < begin + size; ++i) {
        expected.push_back(grads[i] - std::exp(ys[i]) * static_cast<double>(sum));
        scales.push_back(1 + magnitude);
      }
    });
    Tensor grad_x = MakeOutput(device(), dtype, shape);
    Call<op::LogSoftmaxBackward>(grad_x, grad_y, y);
    ExpectClose(grad_x, expected, {.operations = kOperations}, scales);
  });
}

TEST_P(SoftmaxTest, RowsOfEveryLengthAndAlignment) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const std::int64_t length : kRowLengths) {
      for (const Layout layout : {Layout::kContiguous, Layout::kShifted}) {
        SCOPED_TRACE(testing::Message()
                     << ToString(dtype) << " " << length << " " << testing::PrintToString(layout));
        const Dims shape = {2, length};
        const auto size = static_cast<std::size_t>(length);
        const Tensor x =
            MakeTensor(device(), dtype, shape, RandomValues(2 * length, -9, 9, 6), layout);
        const std::vector<double> values = ToDoubles(x);
        std::vector<double> logs;
        std::vector<double> expected;
        ForEachRow(shape, [&](std::size_t begin, std::size_t row_size) {
          const double lse = LogSumExp(&values[begin], row_size);
          for (std::size_t i = begin; i < begin + row_size; ++i) {
            logs.push_back(values[i] - lse);
            expected.push_back(std::exp(logs.back()));
          }
        });
        Tensor y = MakeOutput(device(), dtype, shape, layout);
        Call<op::LogSoftmax>(y, x);
        ExpectClose(y, logs, {.operations = kOperations, .scale = 24});
        Call<op::Softmax>(y, x);
        ExpectClose(y, expected, {.operations = kOperations});

        const Tensor grad_y =
            MakeTensor(device(), dtype, shape, RandomValues(2 * length, 0, 1, 7), layout);
        const std::vector<double> ys = ToDoubles(y);
        const std::vector<double> grads = ToDoubles(grad_y);
        std::vector<double> grad_values;
        std::vector<double> scales;
        for (std::size_t begin = 0; begin < ys.size(); begin += size) {
          long double dot = 0;
          for (std::size_t i = begin; i < begin + size; ++i)
            dot += ys[i] * grads[i];
          for (std::size_t i = begin; i < begin + size; ++i) {
            grad_values.push_back(ys[i] * (grads[i] - static_cast<double>(dot)));
            scales.push_back(2 * ys[i]);
          }
        }
        Tensor grad_x = MakeOutput(device(), dtype, shape, Layout::kContiguous);
        Call<op::SoftmaxBackward>(grad_x, grad_y, y);
        ExpectClose(grad_x, grad_values, {.operations = kOperations}, scales);
      }
    }
  }
}

TEST_P(SoftmaxTest, MoreRowsThanAGridHasBlocks) {
  // Several short rows share a block.
  constexpr std::int64_t kRows = kManyRows * 4;
  std::vector<float> values(2 * kRows);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i / 2 % 5 * (i % 2));
  const Tensor x = Tensor::Empty({kRows, 2}, DataType::kFloat32, device());
  x.CopyFromHost(values.data(), values.size() * sizeof(float));
  Tensor out = MakeOutput(device(), DataType::kFloat32, {kRows, 2});
  Call<op::Softmax>(out, x);
  const std::vector<float> found = out.ToVector<float>();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); i += 2)
    wrong += !(std::fabs(found[i] - 1 / (1 + std::exp(values[i + 1]))) < 1e-6f);
  EXPECT_EQ(wrong, 0);
}

TEST_P(SoftmaxTest, MaskedElementsAreZeroAndMaskedRowsToo) {
  for (const DataType dtype : kFloatingTypes) {
    SCOPED_TRACE(ToString(dtype));
    const Tensor x =
        MakeTensor(device(), dtype, {2, 3}, {-kInfinity, 2, 2, -kInfinity, -kInfinity, -kInfinity});
    Tensor out = MakeOutput(device(), dtype, {2, 3});
    Call<op::Softmax>(out, x);
    ExpectEqual(out, {0, 0.5, 0.5, 0, 0, 0});
    Call<op::LogSoftmax>(out, x);
    ExpectClose(out, {-kInfinity, std::log(0.5), std::log(0.5), -kInfinity, -kInfinity, -kInfinity},
                {});
  }
}

TEST_P(SoftmaxTest, LargeDifferencesNeitherOverflowNorVanish) {
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {2, 2}, {3e38, -3e38, -5e4, -5e4 - 50});
  Tensor out = MakeOutput(device(), DataType::kFloat32, {2, 2});
  Call<op::Softmax>(out, x);
  ExpectClose(out, {1, 0, 1, std::exp(-50.0)}, {.operations = 16});
  Call<op::LogSoftmax>(out, x);
  ExpectClose(out, {0, -kInfinity, 0, -50}, {.operations = 4, .scale = 1});
}

TEST_P(SoftmaxTest, NanFillsItsRowOnly) {
  const double nan = std::nan("");
  // Beyond the first lane of a vector.
  std::vector<double> values(80, 0.0);
  values[37] = nan;
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {2, 40}, values);
  std::vector<double> expected(80, 1.0 / 40);
  for (int i = 0; i < 40; ++i)
    expected[static_cast<std::size_t>(i)] = nan;
  Tensor out = MakeOutput(device(), DataType::kFloat32, {2, 40});
  Call<op::Softmax>(out, x);
  ExpectClose(out, expected, {.operations = 8});
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(SoftmaxTest);

}  // namespace
}  // namespace infini_train
