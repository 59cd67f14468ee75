// A fused op is defined by its composition of plain ops: here Add and a norm of the rounded sum.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::ExpectSameBits;
using test::kFloatingTypes;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;

constexpr double kEps = 1e-3;

struct Shape {
  std::int64_t rows;
  std::int64_t hidden;
};
constexpr Shape kShapes[] = {{1, 1},    {3, 31},   {5, 32},   {4, 65},  {9, 264},
                             {2, 1000}, {3, 1024}, {3, 1032}, {70, 33}, {70, 520},
                             {2, 2080}, {2, 4104}, {1, 4100}, {0, 8}};

class FusedNormTest : public DeviceTest {
 protected:
  template <typename Body>
  static void ForEachCase(const Body& body) {
    for (const DataType dtype : kFloatingTypes) {
      for (const DataType weight_dtype : {dtype, DataType::kFloat32}) {
        if (dtype == DataType::kFloat64 && weight_dtype != dtype) continue;
        for (const Shape shape : kShapes) {
          SCOPED_TRACE(testing::Message() << ToString(dtype) << " with " << ToString(weight_dtype)
                                          << " weights, " << shape.rows << " x " << shape.hidden);
          body(dtype, weight_dtype, shape);
        }
      }
    }
  }

  static Tensor Make(DataType dtype, const Dims& shape, std::uint64_t seed) {
    return MakeTensor(device(), dtype, shape, RandomValues(Numel(shape), -2, 3, seed));
  }
  static DataType StatType(DataType dtype) {
    return dtype == DataType::kFloat64 ? dtype : DataType::kFloat32;
  }
  /// Each of the two computations is within a few roundings of the exact result.
  static void ExpectAlike(const Tensor& fused, const Tensor& composed) {
    const std::vector<double> expected = ToDoubles(composed);
    // Without rows nothing is summed; gradients grow with rstd, at most 1 / sqrt(eps).
    ExpectClose(fused, expected, {.operations = 200, .scale = 100});
  }
};

TEST_P(FusedNormTest, IsTheNormOfTheRoundedSum) {
  ForEachCase([](DataType dtype, DataType weight_dtype, Shape shape) {
    const Dims matrix = {shape.rows, shape.hidden};
    const Tensor x = Make(dtype, matrix, 1);
    const Tensor residual = Make(dtype, matrix, 2);
    const Tensor weight = Make(weight_dtype, {shape.hidden}, 3);
    const Tensor bias = Make(weight_dtype, {shape.hidden}, 4);
    const DataType stat = StatType(dtype);
    Tensor expected_sum = MakeOutput(device(), dtype, matrix);
    Call<op::Add>(expected_sum, x, residual);
    Tensor expected = MakeOutput(device(), dtype, matrix);
    Tensor expected_mean = MakeOutput(device(), stat, {shape.rows});
    Tensor expected_rstd = MakeOutput(device(), stat, {shape.rows});
    Tensor sum = MakeOutput(device(), dtype, matrix);
    Tensor out = MakeOutput(device(), dtype, matrix);
    Tensor mean = MakeOutput(device(), stat, {shape.rows});
    Tensor rstd = MakeOutput(device(), stat, {shape.rows});

    Call<op::LayerNorm>(expected, expected_mean, expected_rstd, expected_sum, weight, bias, kEps);
    Call<op::AddLayerNorm>(sum, out, mean, rstd, x, residual, weight, bias, kEps);
    ExpectSameBits(sum, expected_sum);
    ExpectAlike(out, expected);
    ExpectAlike(mean, expected_mean);
    ExpectAlike(rstd, expected_rstd);

    Call<op::RmsNorm>(expected, expected_rstd, expected_sum, weight, kEps);
    Call<op::AddRmsNorm>(sum, out, rstd, x, residual, weight, kEps);
    ExpectSameBits(sum, expected_sum);
    ExpectAlike(out, expected);
    ExpectAlike(rstd, expected_rstd);
    // Without parameters.
    Call<op::AddLayerNorm>(sum, out, mean, rstd, x, residual, Tensor(), Tensor(), kEps);
    Call<op::LayerNorm>(expected, expected_mean, expected_rstd, expected_sum, Tensor(), Tensor(),
                        kEps);
    ExpectAlike(out, expected);
  });
}

TEST_P(FusedNormTest, BackwardAddsTheGradientOfTheSum) {
  ForEachCase([](DataType dtype, DataType weight_dtype, Shape shape) {
    const Dims matrix = {shape.rows, shape.hidden};
    const Tensor sum = Make(dtype, matrix, 1);
    const Tensor grad_y = Make(dtype, matrix, 2);
    const Tensor grad_sum = Make(dtype, matrix, 3);
    const Tensor weight = Make(weight_dtype, {shape.hidden}, 4);
    const DataType stat = StatType(dtype);
    const auto output = [&](const Dims& dims, DataType type) {
      return MakeOutput(device(), type, dims);
    };
    Tensor out = output(matrix, dtype);
    Tensor mean = output({shape.rows}, stat);
    Tensor rstd = output({shape.rows}, stat);
    Tensor norm_grad = output(matrix, dtype);
    Tensor expected_weight = output({shape.hidden}, weight_dtype);
    Tensor expected_bias = output({shape.hidden}, weight_dtype);
    Tensor grad_x = output(matrix, dtype);
    Tensor grad_weight = output({shape.hidden}, weight_dtype);
    Tensor grad_bias = output({shape.hidden}, weight_dtype);
    // In the half types the composition rounds once more than the fused op: compare wider.
    const auto expected = [&](const Tensor& through_norm) {
      std::vector<double> values = ToDoubles(through_norm);
      const std::vector<double> direct = ToDoubles(grad_sum);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] += direct[i];
      return values;
    };
    const test::Tolerance tolerance{.operations = 200, .scale = 100, .compute = dtype};

    Call<op::LayerNorm>(out, mean, rstd, sum, weight, Tensor(), kEps);
    Call<op::LayerNormBackward>(norm_grad, expected_weight, expected_bias, grad_y, sum, weight,
                                mean, rstd);
    Tensor no_sums;
    Call<op::AddLayerNormBackward>(grad_x, grad_weight, grad_bias, no_sums, grad_y, grad_sum, sum,
                                   weight, mean, rstd);
    const test::Tolerance rounding{.operations = SizeOf(dtype) == 2 ? 4.0 : 200.0,
                                   .scale = SizeOf(dtype) == 2 ? 0.0 : 100.0,
                                   .compute = dtype};
    std::vector<double> scales;
    const std::vector<double> through = ToDoubles(norm_grad);
    const std::vector<double> direct = ToDoubles(grad_sum);
    for (std::size_t i = 0; i < through.size(); ++i)
      scales.push_back(std::max({std::abs(through[i]), std::abs(direct[i]), rounding.scale}));
    ExpectClose(grad_x, expected(norm_grad), rounding, scales);
    ExpectClose(grad_weight, ToDoubles(expected_weight), tolerance);
    ExpectClose(grad_bias, ToDoubles(expected_bias), tolerance);

    Tensor none;
    Call<op::RmsNorm>(out, rstd, sum, weight, kEps);
    Call<op::RmsNormBackward>(norm_grad, none, grad_y, sum, weight, rstd);
    Call<op::AddRmsNormBackward>(grad_x, none, grad_y, grad_sum, sum, weight, rstd);
    const std::vector<double> rms = ToDoubles(norm_grad);
    for (std::size_t i = 0; i < rms.size(); ++i)
      scales[i] = std::max({std::abs(rms[i]), std::abs(direct[i]), rounding.scale});
    ExpectClose(grad_x, expected(norm_grad), rounding, scales);
  });
}

/// The sums of columns of a matrix, and of their magnitudes.
struct ColumnSums {
  explicit ColumnSums(const Tensor& matrix)
      : sums(static_cast<std::size_t>(matrix.size(1))), magnitudes(sums.size()) {
    const std::vector<double> values = ToDoubles(matrix);
    for (std::size_t i = 0; i < values.size(); ++i) {
      sums[i % sums.size()] += values[i];
      magnitudes[i % sums.size()] += std::abs(values[i]);
    }
  }

  std::vector<double> sums;
  std::vector<double> magnitudes;
};

TEST_P(FusedNormTest, BackwardSumsTheColumnsOfItsResult) {
  ForEachCase([](DataType dtype, DataType weight_dtype, Shape shape) {
    const Dims matrix = {shape.rows, shape.hidden};
    const Tensor sum = Make(dtype, matrix, 1);
    const Tensor grad_y = Make(dtype, matrix, 2);
    const Tensor grad_sum = Make(dtype, matrix, 3);
    const Tensor weight = Make(weight_dtype, {shape.hidden}, 4);
    const DataType stat = StatType(dtype);
    const Tensor mean = Make(stat, {shape.rows}, 5);
    const Tensor rstd = Make(stat, {shape.rows}, 6);
    for (const DataType sums_dtype : {dtype, stat}) {
      const auto output = [&](const Dims& dims, DataType type) {
        return MakeOutput(device(), type, dims);
      };
      Tensor plain_x = output(matrix, dtype);
      Tensor plain_weight = output({shape.hidden}, weight_dtype);
      Tensor plain_bias = output({shape.hidden}, weight_dtype);
      Tensor grad_x = output(matrix, dtype);
      Tensor grad_weight = output({shape.hidden}, weight_dtype);
      Tensor grad_bias = output({shape.hidden}, weight_dtype);
      Tensor sums = output({shape.hidden}, sums_dtype);
      Tensor sums_alone = output({shape.hidden}, sums_dtype);
      Tensor none;
      Call<op::AddLayerNormBackward>(plain_x, plain_weight, plain_bias, none, grad_y, grad_sum, sum,
                                     weight, mean, rstd);
      Call<op::AddLayerNormBackward>(grad_x, grad_weight, grad_bias, sums, grad_y, grad_sum, sum,
                                     weight, mean, rstd);
      // Each term may differ from what was stored by its rounding.
      const ColumnSums expected(grad_x);
      ExpectClose(sums, expected.sums,
                  {.operations = static_cast<double>(shape.rows + 4), .compute = dtype},
                  expected.magnitudes);
      const test::Tolerance same{.operations = 100, .scale = 100};
      ExpectClose(grad_x, ToDoubles(plain_x), same);
      ExpectClose(grad_weight, ToDoubles(plain_weight), same);
      ExpectClose(grad_bias, ToDoubles(plain_bias), same);

      Call<op::AddLayerNormBackward>(grad_x, none, none, sums_alone, grad_y, grad_sum, sum, weight,
                                     mean, rstd);
      ExpectSameBits(sums_alone, sums);
    }
  });
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(FusedNormTest);

}  // namespace
}  // namespace infini_train
