#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>

#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train::test {
namespace {

class ReductionTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(ReductionTest);

constexpr DataType kSumTypes[] = {DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
                                  DataType::kBFloat16, DataType::kInt64,   DataType::kInt32};

Dims ReducedShape(const Dims& shape, const Dims& dims) {
  Dims result = shape;
  for (std::int64_t dim : dims)
    result[static_cast<int>(dim)] = 1;
  return result;
}

/// Folds the elements of each result together, in row-major order.
template <typename Fold>
std::vector<double> Reduce(const Tensor& x, const Dims& dims, double start, const Fold& fold) {
  const Dims out_shape = ReducedShape(x.shape(), dims);
  std::vector<double> results(static_cast<std::size_t>(Numel(out_shape)), start);
  const std::vector<double> values = ToDoubles(x);
  ForEachIndex(x.shape(), [&](std::int64_t flat, Dims index) {
    for (std::int64_t dim : dims)
      index[static_cast<int>(dim)] = 0;
    double& result = results[static_cast<std::size_t>(FlatIndex(out_shape, index))];
    result = fold(result, values[static_cast<std::size_t>(flat)]);
  });
  return results;
}

struct Problem {
  Dims shape;
  Dims dims;
};

const std::vector<Problem> kProblems = {
    {{}, {}},
    {{5}, {0}},
    {{5}, {}},
    {{0}, {0}},
    {{3, 0}, {1}},
    {{0, 3}, {1}},
    {{3, 4}, {0}},
    {{3, 4}, {1}},
    {{70, 33}, {0}},
    {{33, 70}, {1}},
    {{33, 70}, {0, 1}},
    {{2, 3, 4, 5}, {1, 3}},
    {{4, 3, 37}, {0, 1}},
    {{4, 9, 40}, {0, 2}},
    {{6, 50, 2}, {1}},
    {{1, 1, 9}, {0, 1}},
    {{3, 20, 600}, {1}},
    {{2, 2500}, {1}},
    {{700, 16}, {0}},
    {{9, 3, 48}, {0}},
};

TEST_P(ReductionTest, SumAndMeanInEveryTypeAndLayout) {
  for (DataType dtype : kSumTypes) {
    for (Layout layout : kAllLayouts) {
      for (const Problem& problem : kProblems) {
        std::vector<double> values = RandomValues(Numel(problem.shape), -9, 9, 3);
        if (!IsFloatingPoint(dtype)) {
          for (double& value : values)
            value = std::floor(value);
        }
        const Tensor x = MakeTensor(device(), dtype, problem.shape, values, layout);
        const Dims out_shape = ReducedShape(problem.shape, problem.dims);
        std::vector<double> expected =
            Reduce(x, problem.dims, 0, [](double a, double b) { return a + b; });
        std::vector<double> scales =
            Reduce(x, problem.dims, 0, [](double a, double b) { return a + std::fabs(b); });
        SCOPED_TRACE(testing::Message()
                     << problem.shape.ToString() << " over " << problem.dims.ToString() << " "
                     << testing::PrintToString(layout));
        // Long sums run in pieces of at most 64 roundings.
        Tensor out = MakeOutput(device(), dtype, out_shape,
                                layout == Layout::kExpanded ? Layout::kContiguous : layout);
        Call<op::Sum>(out, x, problem.dims);
        ExpectClose(out, expected, {.operations = 64}, scales);
        ExpectGapsUntouched(out);
        if (!IsFloatingPoint(dtype)) continue;
        const double count =
            static_cast<double>(Numel(problem.shape)) / static_cast<double>(Numel(out_shape));
        const double terms = Numel(out_shape) == 0 ? 1 : Numel(problem.shape) == 0 ? 0 : count;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          expected[i] /= terms;
          scales[i] = terms == 0 ? 0 : scales[i] / terms;
        }
        Call<op::Mean>(out, x, problem.dims);
        ExpectClose(out, expected, {.operations = 64}, scales);
      }
    }
  }
}

TEST_P(ReductionTest, MaxAndMinInEveryTypeAndLayout) {
  for (DataType dtype : kAllTypes) {
    for (Layout layout : kAllLayouts) {
      for (const Problem& problem : kProblems) {
        if (Numel(problem.shape) == 0) continue;
        const bool is_signed =
            IsFloatingPoint(dtype) || dtype == DataType::kInt64 || dtype == DataType::kInt32;
        std::vector<double> values = RandomValues(Numel(problem.shape), is_signed ? -90 : 0, 90, 4);
        for (double& value : values)
          value = dtype == DataType::kBool ? value > 88 : std::floor(value);
        const Tensor x = MakeTensor(device(), dtype, problem.shape, values, layout);
        Tensor out = MakeOutput(device(), dtype, ReducedShape(problem.shape, problem.dims));
        SCOPED_TRACE(testing::Message()
                     << problem.shape.ToString() << " over " << problem.dims.ToString());
        Call<op::Max>(out, x, problem.dims);
        ExpectEqual(
            out, Reduce(x, problem.dims, -1e9, [](double a, double b) { return std::fmax(a, b); }));
        Call<op::Min>(out, x, problem.dims);
        ExpectEqual(
            out, Reduce(x, problem.dims, 1e9, [](double a, double b) { return std::fmin(a, b); }));
      }
    }
  }
}

TEST_P(ReductionTest, NaNAndInfinity) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (DataType dtype : kFloatingTypes) {
    // Rows long enough for vector bodies; the NaN in different places.
    for (std::int64_t place : {0, 5, 299}) {
      std::vector<double> values = RandomValues(300, -1, 1, 2);
      values[static_cast<std::size_t>(place)] = std::nan("");
      for (const Dims& shape : {Dims{1, 300}, Dims{300, 1}, Dims{20, 15}}) {
        const Tensor x = MakeTensor(device(), dtype, shape, values);
        Tensor out = MakeOutput(device(), dtype, {1, 1});
        Call<op::Max>(out, x, Dims{0, 1});
        ExpectEqual(out, {std::nan("")});
        Call<op::Min>(out, x, Dims{0, 1});
        ExpectEqual(out, {std::nan("")});
        Call<op::Sum>(out, x, Dims{0, 1});
        ExpectEqual(out, {std::nan("")});
      }
    }
    const Tensor x =
        MakeTensor(device(), dtype, {2, 3}, {-infinity, -infinity, -infinity, 1, infinity, 2});
    Tensor out = MakeOutput(device(), dtype, {2, 1});
    Call<op::Max>(out, x, Dims{1});
    ExpectEqual(out, {-infinity, infinity});
    Call<op::Sum>(out, x, Dims{1});
    ExpectEqual(out, {-infinity, infinity});
  }
}

TEST_P(ReductionTest, RowsAndColumnsOfEveryLength) {
  for (DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (std::int64_t length : kRowLengths) {
      for (Layout layout : {Layout::kContiguous, Layout::kShifted}) {
        if (dtype == DataType::kBFloat16 && layout == Layout::kContiguous) continue;
        for (const Problem& problem : {Problem{{3, length}, {1}}, Problem{{length, 3}, {0}}}) {
          const Tensor x = MakeTensor(device(), dtype, problem.shape,
                                      RandomValues(Numel(problem.shape), -9, 9, 3), layout);
          const Dims out_shape = ReducedShape(problem.shape, problem.dims);
          Tensor out = MakeOutput(device(), dtype, out_shape);
          SCOPED_TRACE(problem.shape.ToString());
          Call<op::Sum>(out, x, problem.dims);
          ExpectClose(out, Reduce(x, problem.dims, 0, [](double a, double b) { return a + b; }),
                      {.operations = 64}, Reduce(x, problem.dims, 0, [](double a, double b) {
                        return a + std::fabs(b);
                      }));
          Call<op::Max>(out, x, problem.dims);
          const std::vector<double> largest =
              Reduce(x, problem.dims, -1e9, [](double a, double b) { return std::fmax(a, b); });
          ExpectEqual(out, largest);

          const int dim = static_cast<int>(problem.dims[0]);
          Tensor positions = MakeOutput(device(), DataType::kInt64, out_shape);
          Call<op::ArgMax>(positions, x, dim);
          const std::vector<double> values = ToDoubles(x);
          const std::vector<double> found = ToDoubles(positions);
          for (std::size_t i = 0; i < 3; ++i) {
            std::size_t first = 0;
            const std::size_t start = dim == 1 ? i * static_cast<std::size_t>(length) : i;
            const std::size_t step = dim == 1 ? 1 : 3;
            while (values[start + first * step] != largest[i])
              ++first;
            EXPECT_EQ(found[i], static_cast<double>(first));
          }

          // Sums of positive numbers, so that an error of one element shows.
          const Tensor positive = MakeTensor(device(), dtype, problem.shape,
                                             RandomValues(Numel(problem.shape), 1, 2, 4), layout);
          std::vector<double> sums = ToDoubles(positive);
          const std::size_t step = dim == 1 ? 1 : 3;
          for (std::size_t i = 0; i < sums.size(); ++i) {
            const bool is_first = dim == 1 ? i % static_cast<std::size_t>(length) == 0 : i < 3;
            if (!is_first) sums[i] += sums[i - step];
          }
          Tensor running = MakeOutput(device(), dtype, problem.shape, layout);
          Call<op::CumSum>(running, positive, dim);
          ExpectClose(running, sums, {.operations = 1});
        }
      }
    }
  }
}

TEST_P(ReductionTest, MoreResultsThanAGridHasLanes) {
  const std::int64_t count = kManyRows * 256 + 3;
  std::vector<std::uint8_t> values(static_cast<std::size_t>(count) * 2);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::uint8_t>(i * 7 + i / 253);
  Tensor x = Tensor::Empty({count, 2}, DataType::kUInt8, device());
  x.CopyFromHost(values.data(), values.size());
  Tensor out = Tensor::Empty({count, 1}, DataType::kUInt8, device());
  Call<op::Max>(out, x, Dims{1});
  const std::vector<std::uint8_t> found = out.ToVector<std::uint8_t>();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    wrong += found[i] != std::max(values[2 * i], values[2 * i + 1]);
  EXPECT_EQ(wrong, 0);
}

/// Rows long enough for a block each.
TEST_P(ReductionTest, MoreRowsThanAGridHasBlocks) {
  const std::int64_t length = 70;
  const Tensor row =
      MakeTensor(device(), DataType::kInt32, {length}, RandomValues(length, 0, 9, 1));
  const std::vector<std::int32_t> steps = row.ToVector<std::int32_t>();
  Tensor out = Tensor::Empty({kManyRows, length}, DataType::kInt32, device());
  Call<op::CumSum>(out, row.AsStrided({kManyRows, length}, {0, 1}, row.offset()), 1);
  const std::vector<std::int32_t> found = out.ToVector<std::int32_t>();
  std::int64_t wrong = 0;
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::size_t place = i % static_cast<std::size_t>(length);
    sum = (place == 0 ? 0 : sum) + steps[place];
    wrong += found[i] != sum;
  }
  EXPECT_EQ(wrong, 0);
}

TEST_P(ReductionTest, SumsOfHalfTypesMayBeFloat32) {
  for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
    for (const Problem& problem : kProblems) {
      const Tensor x =
          MakeTensor(device(), dtype, problem.shape, RandomValues(Numel(problem.shape), -9, 9, 3));
      Tensor out =
          MakeOutput(device(), DataType::kFloat32, ReducedShape(problem.shape, problem.dims));
      SCOPED_TRACE(problem.shape.ToString());
      Call<op::Sum>(out, x, problem.dims);
      ExpectClose(out, Reduce(x, problem.dims, 0, [](double a, double b) { return a + b; }),
                  {.operations = 64},
                  Reduce(x, problem.dims, 0, [](double a, double b) { return a + std::fabs(b); }));
    }
  }
}

TEST_P(ReductionTest, EmptyExtremesAreAnError) {
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {2, 0}, {});
  Tensor out = MakeOutput(device(), DataType::kFloat32, {2, 1});
  EXPECT_THAT([&] { Call<op::Max>(out, x, Dims{1}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("[2, 0]")));
  Tensor positions = MakeOutput(device(), DataType::kInt64, {2, 1});
  EXPECT_THROW(Call<op::ArgMax>(positions, x, 1), Error);
}

/// A float32 running sum would stop growing at 2^24 or drift by parts in a thousand.
TEST_P(ReductionTest, LongSumsAreAccurate) {
  const std::int64_t count = 3000000;
  const Tensor value = MakeTensor(device(), DataType::kFloat32, {1}, {0.1});
  const double exact = ToDoubles(value)[0] * static_cast<double>(count);
  // One long row, and columns with many rows; both with and without gaps.
  Tensor ones = MakeOutput(device(), DataType::kFloat32, {count});
  Call<op::Copy>(ones, value.AsStrided({count}, {0}, 0));
  Tensor out = MakeOutput(device(), DataType::kFloat32, {1});
  Call<op::Sum>(out, ones, Dims{0});
  ExpectClose(out, {exact}, {.operations = 32});
  Tensor columns = MakeOutput(device(), DataType::kFloat32, {1, 10});
  Call<op::Sum>(columns, ones.AsStrided({count / 10, 10}, {10, 1}, 0), Dims{0});
  ExpectClose(columns, std::vector<double>(10, exact / 10), {.operations = 32});
  Tensor expanded = MakeOutput(device(), DataType::kFloat32, {1});
  Call<op::Sum>(expanded, value.AsStrided({count}, {0}, 0), Dims{0});
  ExpectSameBits(out, expanded);
}

TEST_P(ReductionTest, LargeProblemsInPieces) {
  for (const Problem& problem : {Problem{{4000, 96}, {0}}, Problem{{3, 90000}, {1}},
                                 Problem{{300, 700}, {0, 1}}, Problem{{5, 400, 130}, {0, 1}}}) {
    for (DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
      const Tensor x =
          MakeTensor(device(), dtype, problem.shape, RandomValues(Numel(problem.shape), -1, 1, 6));
      Tensor out = MakeOutput(device(), dtype, ReducedShape(problem.shape, problem.dims));
      Call<op::Sum>(out, x, problem.dims);
      ExpectClose(out, Reduce(x, problem.dims, 0, [](double a, double b) { return a + b; }),
                  {.operations = 32},
                  Reduce(x, problem.dims, 0, [](double a, double b) { return a + std::fabs(b); }));
    }
  }
}

TEST_P(ReductionTest, IntegerSumsAreExact) {
  const std::vector<std::int64_t> values = {(std::int64_t{1} << 53) + 1, 1, INT64_MAX, 1};
  Tensor x = Tensor::Empty({2, 2}, DataType::kInt64, device());
  x.CopyFromHost(values.data(), values.size() * sizeof(std::int64_t));
  Tensor out = MakeOutput(device(), DataType::kInt64, {2, 1});
  Call<op::Sum>(out, x, Dims{1});
  EXPECT_EQ(out.ToVector<std::int64_t>(),
            (std::vector<std::int64_t>{(std::int64_t{1} << 53) + 2, INT64_MIN}));
}

TEST_P(ReductionTest, ArgMaxAndArgMin) {
  for (DataType dtype : kAllTypes) {
    for (Layout layout : kAllLayouts) {
      const Dims shape = {3, 7, 1100};
      std::vector<double> values = RandomValues(Numel(shape), 0, 100, 8);
      for (double& value : values)
        value = dtype == DataType::kBool ? value > 98 : std::floor(value);  // With ties.
      const Tensor x = MakeTensor(device(), dtype, shape, values, layout);
      const std::vector<double> stored = ToDoubles(x);
      for (int dim : {0, 1, 2}) {
        Dims out_shape = shape;
        out_shape[dim] = 1;
        std::vector<double> largest(static_cast<std::size_t>(Numel(out_shape)), -1);
        std::vector<double> smallest = largest;
        std::vector<double> high(largest.size(), -1e9);
        std::vector<double> low(largest.size(), 1e9);
        ForEachIndex(shape, [&](std::int64_t flat, Dims index) {
          const double position = static_cast<double>(index[dim]);
          index[dim] = 0;
          const auto result = static_cast<std::size_t>(FlatIndex(out_shape, index));
          const double value = stored[static_cast<std::size_t>(flat)];
          if (value > high[result]) high[result] = value, largest[result] = position;
          if (value < low[result]) low[result] = value, smallest[result] = position;
        });
        Tensor out = MakeOutput(device(), DataType::kInt64, out_shape);
        Call<op::ArgMax>(out, x, dim);
        ExpectEqual(out, largest);
        Call<op::ArgMin>(out, x, dim);
        ExpectEqual(out, smallest);
      }
    }
  }
}

TEST_P(ReductionTest, ArgMaxFindsTheFirstNaN) {
  const double nan = std::nan("");
  for (DataType dtype : kFloatingTypes) {
    const Tensor x = MakeTensor(device(), dtype, {2, 4}, {1, nan, 5, nan, 3, 2, 3, 1});
    Tensor out = MakeOutput(device(), DataType::kInt64, {2, 1});
    Call<op::ArgMax>(out, x, 1);
    ExpectEqual(out, {1, 0});
    Call<op::ArgMin>(out, x, 1);
    ExpectEqual(out, {1, 3});
  }
}

TEST_P(ReductionTest, CumSum) {
  for (DataType dtype : kSumTypes) {
    for (Layout layout : kAllLayouts) {
      for (const Dims& shape : {Dims{3, 5, 4}, Dims{2, 3, 1500}, Dims{2, 0, 3}}) {
        std::vector<double> values = RandomValues(Numel(shape), -3, 3, 5);
        if (!IsFloatingPoint(dtype)) {
          for (double& value : values)
            value = std::floor(value);
        }
        const Tensor x = MakeTensor(device(), dtype, shape, values, layout);
        for (int dim : {0, 1, 2}) {
          std::vector<double> expected = ToDoubles(x);
          std::vector<double> scales = expected;
          ForEachIndex(shape, [&](std::int64_t flat, Dims index) {
            auto& scale = scales[static_cast<std::size_t>(flat)];
            scale = std::fabs(scale);
            if (index[dim] == 0) return;
            --index[dim];
            const auto before = static_cast<std::size_t>(FlatIndex(shape, index));
            expected[static_cast<std::size_t>(flat)] += expected[before];
            scale += scales[before];
          });
          Tensor out = MakeOutput(device(), dtype, shape, Layout::kSliced);
          Call<op::CumSum>(out, x, dim);
          ExpectClose(out, expected, {.operations = 1500}, scales);
          ExpectGapsUntouched(out);
        }
      }
    }
  }
}

}  // namespace
}  // namespace infini_train::test
