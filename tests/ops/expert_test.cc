#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::ExpectEqual;
using test::kFloatingTypes;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct Shape {
  std::int64_t tokens;
  std::int64_t experts;
  std::int64_t choices;
  std::int64_t hidden;
};
constexpr Shape kShapes[] = {
    {1, 1, 1, 1}, {33, 8, 2, 65}, {5, 3, 3, 32}, {300, 64, 6, 7}, {0, 4, 2, 8}};

/// A routing with uneven experts, some without a token.
std::vector<double> Routing(Shape shape) {
  std::vector<double> experts = RandomValues(shape.tokens * shape.choices, 0, 1, 3);
  for (double& expert : experts)
    expert = std::floor(expert * expert * static_cast<double>(shape.experts));
  return experts;
}

struct Sorted {
  std::vector<double> rows, counts;
};
Sorted SortByDefinition(const std::vector<double>& experts, Shape shape) {
  Sorted sorted{std::vector<double>(experts.size()),
                std::vector<double>(static_cast<std::size_t>(shape.experts), 0.0)};
  double next = 0;
  for (std::size_t e = 0; e < sorted.counts.size(); ++e) {
    for (std::size_t i = 0; i < experts.size(); ++i) {
      if (experts[i] != static_cast<double>(e)) continue;
      sorted.rows[i] = next++;
      ++sorted.counts[e];
    }
  }
  return sorted;
}

class ExpertTest : public DeviceTest {};

TEST_P(ExpertTest, SortIsStableAndCounts) {
  for (const Shape shape : kShapes) {
    const std::vector<double> routing = Routing(shape);
    const Sorted expected = SortByDefinition(routing, shape);
    for (const DataType dtype : {DataType::kInt64, DataType::kInt32}) {
      const Tensor experts = MakeTensor(device(), dtype, {shape.tokens, shape.choices}, routing);
      Tensor rows = MakeOutput(device(), DataType::kInt64, {shape.tokens, shape.choices});
      Tensor counts = MakeOutput(device(), DataType::kInt64, {shape.experts});
      Call<op::ExpertSort>(rows, counts, experts);
      ExpectEqual(rows, expected.rows);
      ExpectEqual(counts, expected.counts);
    }
  }
}

TEST_P(ExpertTest, PermutesWeighsAndBringsBack) {
  for (const DataType dtype : kFloatingTypes) {
    const DataType stat = dtype == DataType::kFloat64 ? dtype : DataType::kFloat32;
    for (const Shape shape : kShapes) {
      SCOPED_TRACE(testing::Message() << ToString(dtype) << ", " << shape.tokens << " tokens");
      const std::vector<double> row_values = SortByDefinition(Routing(shape), shape).rows;
      const Dims choices = {shape.tokens, shape.choices};
      const Dims tokens = {shape.tokens, shape.hidden};
      const Dims permuted = {shape.tokens * shape.choices, shape.hidden};
      const Tensor rows = MakeTensor(device(), DataType::kInt64, choices, row_values);
      const Tensor x = MakeTensor(device(), dtype, tokens, RandomValues(Numel(tokens), -2, 2, 1));
      const Tensor y =
          MakeTensor(device(), dtype, permuted, RandomValues(Numel(permuted), -2, 2, 2));
      const Tensor weights =
          MakeTensor(device(), stat, choices, RandomValues(Numel(choices), 0, 1, 4));
      const std::vector<double> xs = ToDoubles(x);
      const std::vector<double> ys = ToDoubles(y);
      const std::vector<double> ws = ToDoubles(weights);
      std::vector<double> plain(ys.size()), weighted(ys.size());
      std::vector<double> sum(xs.size()), weighted_sum(xs.size()), dots(ws.size());
      const auto hidden = static_cast<std::size_t>(shape.hidden);
      for (std::size_t i = 0; i < ws.size(); ++i) {
        const std::size_t token = i / static_cast<std::size_t>(shape.choices);
        const auto row = static_cast<std::size_t>(row_values[i]);
        for (std::size_t c = 0; c < hidden; ++c) {
          plain[row * hidden + c] = xs[token * hidden + c];
          weighted[row * hidden + c] = xs[token * hidden + c] * ws[i];
          sum[token * hidden + c] += ys[row * hidden + c];
          weighted_sum[token * hidden + c] += ys[row * hidden + c] * ws[i];
          dots[i] += xs[token * hidden + c] * ys[row * hidden + c];
        }
      }
      Tensor out = MakeOutput(device(), dtype, permuted);
      Call<op::ExpertPermute>(out, x, rows, Tensor());
      ExpectEqual(out, plain);
      Call<op::ExpertPermute>(out, x, rows, weights);
      ExpectClose(out, weighted, {});
      Tensor back = MakeOutput(device(), dtype, tokens);
      Call<op::ExpertUnpermute>(back, y, rows, Tensor());
      ExpectClose(back, sum, {.operations = 6, .scale = 12});
      Call<op::ExpertUnpermute>(back, y, rows, weights);
      ExpectClose(back, weighted_sum, {.operations = 12, .scale = 12});
      Tensor grad_weights = MakeOutput(device(), stat, choices);
      Call<op::ExpertWeightsBackward>(grad_weights, x, y, rows);
      ExpectClose(grad_weights, dots,
                  {.operations = 80, .scale = 4.0 * static_cast<double>(shape.hidden)});
    }
  }
}

TEST_P(ExpertTest, SkippedRowsAddNothing) {
  const Tensor rows = MakeTensor(device(), DataType::kInt64, {2, 2}, {0, -1, -1, -1});
  const Tensor y =
      MakeTensor(device(), DataType::kFloat32, {4, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  Tensor out = MakeOutput(device(), DataType::kFloat32, {2, 3});
  Call<op::ExpertUnpermute>(out, y, rows, Tensor());
  ExpectEqual(out, {1, 2, 3, 0, 0, 0});
  Tensor grad_weights = MakeOutput(device(), DataType::kFloat32, {2, 2});
  Call<op::ExpertWeightsBackward>(grad_weights, out, y, rows);
  ExpectEqual(grad_weights, {14, 0, 0, 0});
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(ExpertTest);

TEST(ExpertErrorTest, AnExpertOutsideItsRangeIsNamed) {
  Tensor rows = MakeOutput({}, DataType::kInt64, {2, 1});
  Tensor counts = MakeOutput({}, DataType::kInt64, {3});
  for (const double bad : {3.0, -1.0}) {
    const Tensor experts = MakeTensor({}, DataType::kInt64, {2, 1}, {0, bad});
    EXPECT_THAT([&] { Call<op::ExpertSort>(rows, counts, experts); },
                ThrowsMessage<Error>(HasSubstr("ExpertSort")));
  }
}

}  // namespace
}  // namespace infini_train
