#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train::test {
namespace {

class IndexTest : public DeviceTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(IndexTest);

constexpr DataType kIndexTypes[] = {DataType::kInt64, DataType::kInt32};
constexpr DataType kSumTypes[] = {DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
                                  DataType::kBFloat16, DataType::kInt64,   DataType::kInt32};

std::vector<double> SmallIntegers(std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(i * 37 % 101);
  return values;
}

std::vector<double> RandomIndices(std::int64_t count, std::int64_t limit, std::uint64_t seed) {
  std::vector<double> values = RandomValues(count, 0, static_cast<double>(limit), seed);
  for (double& value : values)
    value = std::floor(value);
  return values;
}

struct Problem {
  Dims shape;
  int dim;
  std::int64_t length;  ///< of the index along dim
};
const std::vector<Problem> kProblems = {
    {{5}, 0, 9},         {{4, 6}, 0, 7},       {{4, 6}, 1, 3},
    {{3, 5, 40}, 1, 8},  {{3, 5, 40}, 2, 100}, {{7, 2, 130}, 0, 20},
    {{300, 70}, 0, 400}, {{5, 3}, 1, 0},       {{0, 3}, 1, 2}};

TEST_P(IndexTest, GatherAndScatterInEveryTypeAndLayout) {
  for (const Problem& problem : kProblems) {
    Dims index_shape = problem.shape;
    index_shape[problem.dim] = problem.length;
    const std::int64_t limit = problem.shape[problem.dim];
    const std::vector<double> index_values = RandomIndices(Numel(index_shape), limit, 4);
    for (Layout layout : kAllLayouts) {
      for (DataType index_dtype : kIndexTypes) {
        const Tensor index = MakeTensor(device(), index_dtype, index_shape, index_values, layout);
        const std::vector<double> positions = ToDoubles(index);
        for (DataType dtype : kAllTypes) {
          SCOPED_TRACE(testing::Message() << problem.shape.ToString() << " dim " << problem.dim
                                          << " " << testing::PrintToString(layout));
          const Tensor x = MakeTensor(device(), dtype, problem.shape,
                                      SmallIntegers(Numel(problem.shape)), layout);
          const std::vector<double> values = ToDoubles(x);
          std::vector<double> gathered(positions.size());
          ForEachIndex(index_shape, [&](std::int64_t flat, Dims place) {
            place[problem.dim] =
                static_cast<std::int64_t>(positions[static_cast<std::size_t>(flat)]);
            gathered[static_cast<std::size_t>(flat)] =
                values[static_cast<std::size_t>(FlatIndex(problem.shape, place))];
          });
          Tensor out = MakeOutput(device(), dtype, index_shape, Layout::kSliced);
          Call<op::Gather>(out, x, index, problem.dim);
          ExpectEqual(out, gathered);
          ExpectGapsUntouched(out);

          // Scatter: the last write wins.
          const Layout out_layout = layout == Layout::kExpanded ? Layout::kContiguous : layout;
          Tensor target = MakeTensor(device(), dtype, problem.shape,
                                     SmallIntegers(Numel(problem.shape)), out_layout);
          const Tensor src = MakeTensor(device(), dtype, index_shape,
                                        SmallIntegers(Numel(index_shape)), Layout::kTransposed);
          std::vector<double> scattered = ToDoubles(target);
          const std::vector<double> sources = ToDoubles(src);
          ForEachIndex(index_shape, [&](std::int64_t flat, Dims place) {
            place[problem.dim] =
                static_cast<std::int64_t>(positions[static_cast<std::size_t>(flat)]);
            scattered[static_cast<std::size_t>(FlatIndex(problem.shape, place))] =
                sources[static_cast<std::size_t>(flat)];
          });
          Call<op::Scatter>(target, index, src, problem.dim);
          ExpectEqual(target, scattered);
          ExpectGapsUntouched(target);
        }
      }
    }
  }
}

TEST_P(IndexTest, ScatterAddIsExactAndInOrder) {
  for (const Problem& problem : kProblems) {
    Dims index_shape = problem.shape;
    index_shape[problem.dim] = problem.length;
    for (DataType dtype : kSumTypes) {
      for (Layout layout : kAllLayouts) {
        const Tensor index =
            MakeTensor(device(), DataType::kInt64, index_shape,
                       RandomIndices(Numel(index_shape), problem.shape[problem.dim], 5), layout);
        const std::vector<double> positions = ToDoubles(index);
        const Layout out_layout = layout == Layout::kExpanded ? Layout::kContiguous : layout;
        Tensor out = MakeTensor(device(), dtype, problem.shape, SmallIntegers(Numel(problem.shape)),
                                out_layout);
        const Tensor src =
            MakeTensor(device(), dtype, index_shape, SmallIntegers(Numel(index_shape)), layout);
        std::vector<double> expected = ToDoubles(out);
        const std::vector<double> sources = ToDoubles(src);
        ForEachIndex(index_shape, [&](std::int64_t flat, Dims place) {
          place[problem.dim] = static_cast<std::int64_t>(positions[static_cast<std::size_t>(flat)]);
          expected[static_cast<std::size_t>(FlatIndex(problem.shape, place))] +=
              sources[static_cast<std::size_t>(flat)];
        });
        Call<op::ScatterAdd>(out, index, src, problem.dim);
        // Sums of small integers are exact in float: what remains is the rounding to the dtype.
        ExpectClose(out, expected, {.operations = 0});
        ExpectGapsUntouched(out);
      }
    }
  }
}

TEST_P(IndexTest, ScatterAddToOnePlaceDoesNotStallInHalfPrecision) {
  const std::int64_t count = 1000;
  for (DataType dtype : kFloatingTypes) {
    const std::vector<double> zeros(static_cast<std::size_t>(count), 0);
    const std::vector<double> ones(static_cast<std::size_t>(count), 1);
    Tensor out = MakeTensor(device(), dtype, {2}, {0, 7});
    Call<op::ScatterAdd>(out, MakeTensor(device(), DataType::kInt64, {count}, zeros),
                         MakeTensor(device(), dtype, {count}, ones), 0);
    ExpectClose(out, {1000, 7}, {.operations = 0});
  }
}

TEST_P(IndexTest, IndexSelectAndIndexAdd) {
  for (const Problem& problem : kProblems) {
    Dims out_shape = problem.shape;
    out_shape[problem.dim] = problem.length;
    const std::int64_t limit = problem.shape[problem.dim];
    const std::vector<double> positions = RandomIndices(problem.length, limit, 6);
    for (Layout layout : kAllLayouts) {
      for (DataType index_dtype : kIndexTypes) {
        const Tensor index = MakeTensor(device(), index_dtype, {problem.length}, positions,
                                        layout == Layout::kStepped ? layout : Layout::kContiguous);
        for (DataType dtype : kAllTypes) {
          const Tensor x = MakeTensor(device(), dtype, problem.shape,
                                      SmallIntegers(Numel(problem.shape)), layout);
          const std::vector<double> values = ToDoubles(x);
          std::vector<double> expected(static_cast<std::size_t>(Numel(out_shape)));
          ForEachIndex(out_shape, [&](std::int64_t flat, Dims place) {
            place[problem.dim] =
                static_cast<std::int64_t>(positions[static_cast<std::size_t>(place[problem.dim])]);
            expected[static_cast<std::size_t>(flat)] =
                values[static_cast<std::size_t>(FlatIndex(problem.shape, place))];
          });
          Tensor out = MakeOutput(device(), dtype, out_shape);
          Call<op::IndexSelect>(out, x, index, problem.dim);
          ExpectEqual(out, expected);
        }
        for (DataType dtype : kSumTypes) {
          const Layout out_layout = layout == Layout::kExpanded ? Layout::kSliced : layout;
          Tensor out = MakeTensor(device(), dtype, problem.shape,
                                  SmallIntegers(Numel(problem.shape)), out_layout);
          const Tensor src =
              MakeTensor(device(), dtype, out_shape, SmallIntegers(Numel(out_shape)), layout);
          std::vector<double> expected = ToDoubles(out);
          const std::vector<double> sources = ToDoubles(src);
          ForEachIndex(out_shape, [&](std::int64_t flat, Dims place) {
            place[problem.dim] =
                static_cast<std::int64_t>(positions[static_cast<std::size_t>(place[problem.dim])]);
            expected[static_cast<std::size_t>(FlatIndex(problem.shape, place))] +=
                sources[static_cast<std::size_t>(flat)];
          });
          Call<op::IndexAdd>(out, index, src, problem.dim);
          ExpectClose(out, expected, {.operations = 0});
          ExpectGapsUntouched(out);
        }
      }
    }
  }
}

TEST_P(IndexTest, IndicesOutOfRangeAreNamedAndNothingIsWritten) {
  if (!device().is_cpu()) GTEST_SKIP() << "only the CPU can tell at once";
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {3, 2}, {1, 2, 3, 4, 5, 6});
  for (double bad : {3.0, -1.0}) {
    const Tensor index = MakeTensor(device(), DataType::kInt64, {2, 2}, {0, 1, bad, 0});
    const auto message = testing::ThrowsMessage<Error>(
        testing::AllOf(testing::HasSubstr("index " + std::to_string(static_cast<int>(bad))),
                       testing::HasSubstr("position 2"), testing::HasSubstr("[0, 3)")));
    Tensor out = MakeTensor(device(), DataType::kFloat32, {3, 2}, {1, 2, 3, 4, 5, 6});
    Tensor gathered = MakeOutput(device(), DataType::kFloat32, {2, 2});
    const Tensor src = MakeTensor(device(), DataType::kFloat32, {2, 2}, {9, 9, 9, 9});
    EXPECT_THAT([&] { Call<op::Gather>(gathered, x, index, 0); }, message);
    EXPECT_THAT([&] { Call<op::Scatter>(out, index, src, 0); }, message);
    EXPECT_THAT([&] { Call<op::ScatterAdd>(out, index, src, 0); }, message);
    const Tensor line = index.AsStrided({3}, {1}, 0);
    Tensor rows = MakeOutput(device(), DataType::kFloat32, {3, 2});
    EXPECT_THAT([&] { Call<op::IndexSelect>(rows, x, line, 0); }, message);
    EXPECT_THAT([&] { Call<op::IndexAdd>(out, line, x, 0); }, message);
    ExpectEqual(out, {1, 2, 3, 4, 5, 6});
    // The same index in columns that are repeated, and transposed.
    const Tensor repeated = index.AsStrided({4, 5}, {1, 0}, 0);
    Tensor wide = MakeOutput(device(), DataType::kFloat32, {4, 5});
    const Tensor source =
        MakeTensor(device(), DataType::kFloat32, {3, 5}, std::vector<double>(15, 1));
    EXPECT_THAT([&] { Call<op::Gather>(wide, source, repeated, 0); },
                testing::ThrowsMessage<Error>(testing::HasSubstr("position 10 ")));
    EXPECT_THAT(
        [&] {
          Call<op::Gather>(gathered, x, index.AsStrided({2, 2}, {1, 2}, 0), 0);
        },
        testing::ThrowsMessage<Error>(testing::HasSubstr("position 1 ")));
  }
}

/// Positions in the order of a stable sort; NaN is largest.
std::vector<std::int64_t> SortedPositions(const std::vector<double>& values, std::size_t begin,
                                          std::size_t length, bool descending) {
  std::vector<std::int64_t> order(length);
  std::iota(order.begin(), order.end(), 0);
  const auto less = [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const double first = values[begin + static_cast<std::size_t>(a)];
    const double second = values[begin + static_cast<std::size_t>(b)];
    return descending ? less(second, first) : less(first, second);
  });
  return order;
}

TEST_P(IndexTest, SortAndTopKAreStable) {
  for (DataType dtype : kAllTypes) {
    for (std::int64_t length : {1, 2, 7, 64, 1000}) {
      const std::int64_t rows = 3;
      std::vector<double> values =
          RandomValues(rows * length, 0, 60, static_cast<std::uint64_t>(length));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::floor(values[i]);  // With ties.
        if (IsFloatingPoint(dtype) || dtype == DataType::kInt32 || dtype == DataType::kInt64)
          values[i] -= 30;
        if (IsFloatingPoint(dtype) && i % 17 == 3) values[i] = std::nan("");
        if (IsFloatingPoint(dtype) && i % 13 == 5) values[i] = i % 2 == 0 ? 0.0 : -0.0;
        if (IsFloatingPoint(dtype) && i % 29 == 6)
          values[i] = -std::numeric_limits<double>::infinity();
      }
      const Tensor x = MakeTensor(device(), dtype, {rows, length}, values);
      const std::vector<double> stored = ToDoubles(x);
      for (bool descending : {false, true}) {
        for (std::int64_t k :
             {length, std::int64_t{1}, length / 2, std::min<std::int64_t>(length, 200)}) {
          std::vector<double> expected_values;
          std::vector<double> expected_positions;
          for (std::int64_t row = 0; row < rows; ++row) {
            const auto begin = static_cast<std::size_t>(row * length);
            const auto order =
                SortedPositions(stored, begin, static_cast<std::size_t>(length), descending);
            for (std::int64_t i = 0; i < k; ++i) {
              expected_positions.push_back(static_cast<double>(order[static_cast<std::size_t>(i)]));
              expected_values.push_back(
                  stored[begin + static_cast<std::size_t>(order[static_cast<std::size_t>(i)])]);
            }
          }
          Tensor sorted = MakeOutput(device(), dtype, {rows, k});
          Tensor positions = MakeOutput(device(), DataType::kInt64, {rows, k});
          Call<op::TopK>(sorted, positions, x, descending);
          ExpectEqual(sorted, expected_values);
          ExpectEqual(positions, expected_positions);
          if (k != length) continue;
          Tensor all = MakeOutput(device(), dtype, {rows, k});
          Tensor order = MakeOutput(device(), DataType::kInt64, {rows, k});
          Call<op::Sort>(all, order, x, descending);
          ExpectEqual(all, expected_values);
          ExpectEqual(order, expected_positions);
        }
      }
    }
  }
}

TEST_P(IndexTest, SortsRowsOfEveryLength) {
  for (const std::int64_t length : kRowLengths) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kInt64}) {
      SCOPED_TRACE(testing::Message() << ToString(dtype) << " " << length);
      // Integers of float32's range, many of them equal.
      std::vector<double> values = RandomValues(2 * length, -40000, 40000, 9);
      for (double& value : values)
        value = std::floor(value);
      const Tensor x = MakeTensor(device(), dtype, {2, length}, values, Layout::kShifted);
      std::vector<double> positions;
      std::vector<double> sorted;
      for (std::int64_t row = 0; row < 2; ++row) {
        const auto begin = static_cast<std::size_t>(row * length);
        for (const std::int64_t i :
             SortedPositions(values, begin, static_cast<std::size_t>(length), true)) {
          positions.push_back(static_cast<double>(i));
          sorted.push_back(values[begin + static_cast<std::size_t>(i)]);
        }
      }
      for (const std::int64_t k : {length, std::min<std::int64_t>(length, 50)}) {
        const auto first = [&](const std::vector<double>& all) {
          std::vector<double> kept;
          for (std::size_t i = 0; i < all.size(); ++i) {
            if (static_cast<std::int64_t>(i) % length < k) kept.push_back(all[i]);
          }
          return kept;
        };
        Tensor found = MakeOutput(device(), dtype, {2, k});
        Tensor places = MakeOutput(device(), DataType::kInt64, {2, k});
        Call<op::TopK>(found, places, x, true);
        ExpectEqual(found, first(sorted));
        ExpectEqual(places, first(positions));
      }
    }
  }
}

TEST_P(IndexTest, SortsManyRows) {
  const std::int64_t rows = kManyRows;
  std::vector<std::uint8_t> values(static_cast<std::size_t>(rows) * 3);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
  Tensor x = Tensor::Empty({rows, 3}, DataType::kUInt8, device());
  x.CopyFromHost(values.data(), values.size());
  Tensor sorted = MakeOutput(device(), DataType::kUInt8, {rows, 3});
  Tensor positions = MakeOutput(device(), DataType::kInt64, {rows, 3});
  Call<op::Sort>(sorted, positions, x, false);
  const std::vector<std::uint8_t> found = sorted.ToVector<std::uint8_t>();
  for (std::size_t i = 0; i < values.size(); i += 3)
    std::sort(&values[i], &values[i] + 3);
  EXPECT_TRUE(found == values);
}

TEST_P(IndexTest, GathersMoreElementsThanAGridHasLanes) {
  const std::int64_t columns = kManyRows * 128 + 3;
  std::vector<std::uint8_t> values(static_cast<std::size_t>(columns) * 2);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
  Tensor x = Tensor::Empty({2, columns}, DataType::kUInt8, device());
  x.CopyFromHost(values.data(), values.size());
  Tensor out = Tensor::Empty({2, columns}, DataType::kUInt8, device());
  Call<op::IndexSelect>(out, x, MakeTensor(device(), DataType::kInt64, {2}, {1, 0}), 0);
  std::rotate(values.begin(), values.begin() + columns, values.end());
  EXPECT_TRUE(out.ToVector<std::uint8_t>() == values);
}

TEST_P(IndexTest, AddingAlongLongLinesIsExact) {
  for (const std::int64_t length : kRowLengths) {
    std::vector<double> places(static_cast<std::size_t>(length));
    std::vector<double> sums = {0, 0, 0, 5, 0};
    for (std::size_t i = 0; i < places.size(); ++i) {
      places[i] = static_cast<double>(i % 7 < 3 ? 1 : i * 31 % 5);
      sums[static_cast<std::size_t>(places[i])] += static_cast<double>(i % 11);
    }
    std::vector<double> terms;
    for (std::size_t i = 0; i < places.size(); ++i)
      terms.push_back(static_cast<double>(i % 11));
    const Tensor index = MakeTensor(device(), DataType::kInt32, {length}, places, Layout::kStepped);
    const Tensor src = MakeTensor(device(), DataType::kFloat32, {length}, terms, Layout::kShifted);
    Tensor scattered = MakeTensor(device(), DataType::kFloat32, {5}, {0, 0, 0, 5, 0});
    Call<op::ScatterAdd>(scattered, index, src, 0);
    ExpectEqual(scattered, sums);
    Tensor added = MakeTensor(device(), DataType::kFloat32, {5}, {0, 0, 0, 5, 0});
    Call<op::IndexAdd>(added, index, src, 0);
    ExpectEqual(added, sums);
  }
}

TEST_P(IndexTest, SortKeepsWideIntegersApart) {
  const std::vector<std::int64_t> values = {(std::int64_t{1} << 53) + 1, std::int64_t{1} << 53,
                                            INT64_MIN, INT64_MAX};
  Tensor x = Tensor::Empty({4}, DataType::kInt64, device());
  x.CopyFromHost(values.data(), values.size() * sizeof(std::int64_t));
  Tensor sorted = MakeOutput(device(), DataType::kInt64, {4});
  Tensor positions = MakeOutput(device(), DataType::kInt64, {4});
  Call<op::Sort>(sorted, positions, x, false);
  EXPECT_EQ(positions.ToVector<std::int64_t>(), (std::vector<std::int64_t>{2, 1, 0, 3}));
  EXPECT_EQ(sorted.ToVector<std::int64_t>()[2], values[0]);
}

TEST_P(IndexTest, SortOfNothing) {
  for (const Dims& shape : {Dims{0, 3}, Dims{3, 0}}) {
    const Tensor x = MakeTensor(device(), DataType::kFloat32, shape, {});
    Tensor sorted = MakeOutput(device(), DataType::kFloat32, shape);
    Tensor positions = MakeOutput(device(), DataType::kInt64, shape);
    Call<op::Sort>(sorted, positions, x, true);
  }
}

}  // namespace
}  // namespace infini_train::test
