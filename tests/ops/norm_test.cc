#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
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
using test::Tolerance;

constexpr double kEps = 1e-5;

struct Shape {
  std::int64_t rows;
  std::int64_t hidden;
};

// One element, odd extents, rows longer than a vector or a block of a sum, the longest ones of a
// group and the next ones, more rows than are summed in one piece for a parameter's gradient, and
// none.
constexpr Shape kShapes[] = {{1, 1},    {3, 7},    {5, 64},  {6, 264},  {3, 1024},
                             {3, 1032}, {2, 2100}, {83, 33}, {1100, 9}, {0, 16}};

/// Inputs of one case, and what the ops should give. Sums run in long double, so that the reference
/// of a float64 op is better than the op.
struct Case {
  Case(Device device, DataType dtype, DataType weight_type, Shape shape, bool has_weight,
       bool has_bias)
      : rows(shape.rows), hidden(shape.hidden) {
    x = MakeTensor(device, dtype, {rows, hidden}, RandomValues(rows * hidden, -1.5, 2.5, 1));
    grad_y = MakeTensor(device, dtype, {rows, hidden}, RandomValues(rows * hidden, -1, 1, 2));
    if (has_weight) {
      weight = MakeTensor(device, weight_type, {hidden}, RandomValues(hidden, 0.5, 1.5, 3));
    }
    if (has_bias) bias = MakeTensor(device, weight_type, {hidden}, RandomValues(hidden, -1, 1, 4));
    x_values = ToDoubles(x);
    grad_y_values = ToDoubles(grad_y);
    weight_values =
        has_weight ? ToDoubles(weight) : std::vector<double>(static_cast<std::size_t>(hidden), 1.0);
    bias_values =
        has_bias ? ToDoubles(bias) : std::vector<double>(static_cast<std::size_t>(hidden), 0.0);
  }

  std::size_t At(std::int64_t row, std::int64_t i) const {
    return static_cast<std::size_t>(row * hidden + i);
  }

  /// Mean (0 where not centered) and rstd of each row.
  void Statistics(bool centered) {
    for (std::int64_t row = 0; row < rows; ++row) {
      long double sum = 0;
      for (std::int64_t i = 0; i < hidden; ++i)
        sum += x_values[At(row, i)];
      const double m = centered ? static_cast<double>(sum / hidden) : 0.0;
      long double squares = 0;
      for (std::int64_t i = 0; i < hidden; ++i)
        squares += std::pow(x_values[At(row, i)] - m, 2);
      mean.push_back(m);
      rstd.push_back(1 / std::sqrt(static_cast<double>(squares / hidden) + kEps));
    }
  }

  void Forward() {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < hidden; ++i) {
        const double m = mean[static_cast<std::size_t>(row)];
        const double r = rstd[static_cast<std::size_t>(row)];
        const double w = weight_values[static_cast<std::size_t>(i)];
        const double b = bias_values[static_cast<std::size_t>(i)];
        out.push_back((x_values[At(row, i)] - m) * r * w + b);
        out_scale.push_back((2.5 + std::fabs(m)) * r * w + std::fabs(b));
      }
    }
  }

  void Backward(bool centered) {
    grad_weight.assign(static_cast<std::size_t>(hidden), 0.0);
    grad_bias.assign(static_cast<std::size_t>(hidden), 0.0);
    grad_weight_scale.assign(static_cast<std::size_t>(hidden), 0.0);
    grad_bias_scale.assign(static_cast<std::size_t>(hidden), 0.0);
    for (std::int64_t row = 0; row < rows; ++row) {
      const double m = mean[static_cast<std::size_t>(row)];
      const double r = rstd[static_cast<std::size_t>(row)];
      long double sum_g = 0;
      long double sum_g_n = 0;
      for (std::int64_t i = 0; i < hidden; ++i) {
        const double g = grad_y_values[At(row, i)] * weight_values[static_cast<std::size_t>(i)];
        sum_g += g;
        sum_g_n += g * (x_values[At(row, i)] - m) * r;
      }
      const double mean_g = centered ? static_cast<double>(sum_g / hidden) : 0.0;
      const double mean_g_n = static_cast<double>(sum_g_n / hidden);
      for (std::int64_t i = 0; i < hidden; ++i) {
        const auto column = static_cast<std::size_t>(i);
        const double dy = grad_y_values[At(row, i)];
        const double n = (x_values[At(row, i)] - m) * r;
        const double bound_of_n = (2.5 + std::fabs(m)) * r;
        grad_x.push_back(r * (dy * weight_values[column] - mean_g - n * mean_g_n));
        // |g| is at most 1.5, and so is the mean of |g n| over that of |n|.
        grad_x_scale.push_back(r * 1.5 * (2 + bound_of_n * bound_of_n));
        grad_weight[column] += dy * n;
        grad_bias[column] += dy;
        grad_weight_scale[column] += std::fabs(dy) * bound_of_n;
        grad_bias_scale[column] += std::fabs(dy);
      }
    }
  }

  std::int64_t rows;
  std::int64_t hidden;
  Tensor x, grad_y, weight, bias;
  std::vector<double> x_values, grad_y_values, weight_values, bias_values;
  std::vector<double> mean, rstd, out, out_scale;
  std::vector<double> grad_x, grad_x_scale, grad_weight, grad_weight_scale, grad_bias,
      grad_bias_scale;
};

// Sums are of at most 64 terms (in float) by lanes or rows, joined in float64, after a few
// roundings of each term.
constexpr double kOperations = 80;

class NormTest : public DeviceTest {
 protected:
  /// Every dtype of x with every dtype of the weight that the ops take, over all shapes.
  template <typename Body>
  static void ForEachCase(bool has_weight, bool has_bias, const Body& body) {
    for (const DataType dtype : kFloatingTypes) {
      for (const DataType weight_type : {dtype, DataType::kFloat32}) {
        for (const Shape& shape : kShapes) {
          SCOPED_TRACE(testing::Message() << ToString(dtype) << " with " << ToString(weight_type)
                                          << " weights, " << shape.rows << " x " << shape.hidden);
          Case c(device(), dtype, weight_type, shape, has_weight, has_bias);
          body(c, dtype, weight_type);
        }
        if (weight_type == DataType::kFloat32 && dtype == DataType::kFloat32) break;
      }
    }
  }

  /// Statistics have this type.
  static DataType StatType(DataType dtype) { return PromoteTypes(dtype, DataType::kFloat32); }

  static void ExpectLayerNormBackward(Case& c, DataType dtype, DataType weight_type) {
    c.Statistics(true);
    c.Backward(true);
    const Tensor mean = MakeTensor(device(), StatType(dtype), {c.rows}, c.mean);
    const Tensor rstd = MakeTensor(device(), StatType(dtype), {c.rows}, c.rstd);
    Tensor grad_x = MakeOutput(device(), dtype, {c.rows, c.hidden});
    Tensor grad_weight = MakeOutput(device(), weight_type, {c.hidden});
    Tensor grad_bias = MakeOutput(device(), weight_type, {c.hidden});
    Call<op::LayerNormBackward>(grad_x, grad_weight, grad_bias, c.grad_y, c.x, c.weight, mean,
                                rstd);
    ExpectClose(grad_x, c.grad_x, {.operations = kOperations}, c.grad_x_scale);
    ExpectClose(grad_weight, c.grad_weight, {.operations = kOperations}, c.grad_weight_scale);
    ExpectClose(grad_bias, c.grad_bias, {.operations = kOperations}, c.grad_bias_scale);
  }
};

TEST_P(NormTest, LayerNorm) {
  for (const bool has_weight : {true, false}) {
    for (const bool has_bias : {true, false}) {
      ForEachCase(has_weight, has_bias, [&](Case& c, DataType dtype, DataType) {
        c.Statistics(true);
        c.Forward();
        Tensor out = MakeOutput(device(), dtype, {c.rows, c.hidden});
        Tensor mean = MakeOutput(device(), StatType(dtype), {c.rows});
        Tensor rstd = MakeOutput(device(), StatType(dtype), {c.rows});
        Call<op::LayerNorm>(out, mean, rstd, c.x, c.weight, c.bias, kEps);
        ExpectClose(mean, c.mean, {.operations = kOperations, .scale = 2.5});
        ExpectClose(rstd, c.rstd, {.operations = kOperations});
        ExpectClose(out, c.out, {.operations = kOperations}, c.out_scale);
      });
    }
  }
}

TEST_P(NormTest, RmsNorm) {
  for (const bool has_weight : {true, false}) {
    ForEachCase(has_weight, false, [&](Case& c, DataType dtype, DataType) {
      c.Statistics(false);
      c.Forward();
      Tensor out = MakeOutput(device(), dtype, {c.rows, c.hidden});
      Tensor rstd = MakeOutput(device(), StatType(dtype), {c.rows});
      Call<op::RmsNorm>(out, rstd, c.x, c.weight, kEps);
      ExpectClose(rstd, c.rstd, {.operations = kOperations});
      ExpectClose(out, c.out, {.operations = kOperations}, c.out_scale);
    });
  }
}

TEST_P(NormTest, LayerNormBackward) {
  for (const bool has_weight : {true, false})
    ForEachCase(has_weight, false, ExpectLayerNormBackward);
}

TEST_P(NormTest, LayerNormBackwardOfMoreRowsThanLanesTakeAtATime) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    SCOPED_TRACE(ToString(dtype));
    Case c(device(), dtype, DataType::kFloat32, {8000, 8}, true, false);
    ExpectLayerNormBackward(c, dtype, DataType::kFloat32);
  }
}

TEST_P(NormTest, RmsNormBackward) {
  for (const bool has_weight : {true, false}) {
    ForEachCase(has_weight, false, [&](Case& c, DataType dtype, DataType weight_type) {
      c.Statistics(false);
      c.Backward(false);
      const Tensor rstd = MakeTensor(device(), StatType(dtype), {c.rows}, c.rstd);
      Tensor grad_x = MakeOutput(device(), dtype, {c.rows, c.hidden});
      Tensor grad_weight = MakeOutput(device(), weight_type, {c.hidden});
      Call<op::RmsNormBackward>(grad_x, grad_weight, c.grad_y, c.x, c.weight, rstd);
      ExpectClose(grad_x, c.grad_x, {.operations = kOperations}, c.grad_x_scale);
      ExpectClose(grad_weight, c.grad_weight, {.operations = kOperations}, c.grad_weight_scale);
    });
  }
}

TEST_P(NormTest, RowsOfEveryLengthAndAlignment) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const std::int64_t hidden : kRowLengths) {
      for (const Layout layout : {Layout::kContiguous, Layout::kShifted}) {
        SCOPED_TRACE(testing::Message()
                     << ToString(dtype) << " " << hidden << " " << testing::PrintToString(layout));
        Case c(device(), dtype, DataType::kFloat32, {3, hidden}, true, true);
        c.x = MakeTensor(device(), dtype, {3, hidden}, c.x_values, layout);
        c.Statistics(true);
        c.Forward();
        c.Backward(true);
        Tensor out = MakeOutput(device(), dtype, {3, hidden}, layout);
        Tensor mean = MakeOutput(device(), DataType::kFloat32, {3});
        Tensor rstd = MakeOutput(device(), DataType::kFloat32, {3});
        Call<op::LayerNorm>(out, mean, rstd, c.x, c.weight, c.bias, kEps);
        ExpectClose(rstd, c.rstd, {.operations = kOperations});
        ExpectClose(out, c.out, {.operations = kOperations}, c.out_scale);
        Tensor grad_x = MakeOutput(device(), dtype, {3, hidden}, layout);
        Tensor grad_weight = MakeOutput(device(), DataType::kFloat32, {hidden});
        Tensor grad_bias = MakeOutput(device(), DataType::kFloat32, {hidden});
        Call<op::LayerNormBackward>(grad_x, grad_weight, grad_bias, c.grad_y, c.x, c.weight, mean,
                                    rstd);
        ExpectClose(grad_x, c.grad_x, {.operations = kOperations}, c.grad_x_scale);
        ExpectClose(grad_weight, c.grad_weight, {.operations = kOperations}, c.grad_weight_scale);
        ExpectClose(grad_bias, c.grad_bias, {.operations = kOperations}, c.grad_bias_scale);
      }
    }
  }
}

TEST_P(NormTest, MoreRowsThanAGridHasBlocks) {
  // Several short rows share a block.
  constexpr std::int64_t kRows = kManyRows * 4;
  std::vector<float> values(kRows);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 7 + 1);
  const Tensor x = Tensor::Empty({kRows, 1}, DataType::kFloat32, device());
  x.CopyFromHost(values.data(), values.size() * sizeof(float));
  Tensor out = MakeOutput(device(), DataType::kFloat32, {kRows, 1});
  Tensor rstd = MakeOutput(device(), DataType::kFloat32, {kRows});
  Call<op::RmsNorm>(out, rstd, x, Tensor(), 0.0);
  const std::vector<float> found = out.ToVector<float>();
  const std::vector<float> rstds = rstd.ToVector<float>();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    wrong += !(std::fabs(found[i] - 1) < 1e-6f && std::fabs(rstds[i] * values[i] - 1) < 1e-6f);
  EXPECT_EQ(wrong, 0);
}

TEST_P(NormTest, ParameterGradientsAreOptional) {
  Case c(device(), DataType::kFloat32, DataType::kFloat32, {40, 19}, true, false);
  c.Statistics(true);
  const Tensor mean = MakeTensor(device(), DataType::kFloat32, {c.rows}, c.mean);
  const Tensor rstd = MakeTensor(device(), DataType::kFloat32, {c.rows}, c.rstd);
  Tensor grad_x = MakeOutput(device(), DataType::kFloat32, {c.rows, c.hidden});
  Tensor grad_weight = MakeOutput(device(), DataType::kFloat32, {c.hidden});
  Tensor grad_bias = MakeOutput(device(), DataType::kFloat32, {c.hidden});
  Call<op::LayerNormBackward>(grad_x, grad_weight, grad_bias, c.grad_y, c.x, c.weight, mean, rstd);
  for (const bool has_weight : {true, false}) {
    for (const bool has_bias : {true, false}) {
      Tensor x_only = MakeOutput(device(), DataType::kFloat32, {c.rows, c.hidden});
      Tensor weight_only;
      Tensor bias_only;
      if (has_weight) weight_only = MakeOutput(device(), DataType::kFloat32, {c.hidden});
      if (has_bias) bias_only = MakeOutput(device(), DataType::kFloat32, {c.hidden});
      Call<op::LayerNormBackward>(x_only, weight_only, bias_only, c.grad_y, c.x, c.weight, mean,
                                  rstd);
      ExpectSameBits(x_only, grad_x);
      if (has_weight) ExpectSameBits(weight_only, grad_weight);
      if (has_bias) ExpectSameBits(bias_only, grad_bias);
    }
  }
  Tensor rms_grad_x = MakeOutput(device(), DataType::kFloat32, {c.rows, c.hidden});
  Tensor rms_x_only = MakeOutput(device(), DataType::kFloat32, {c.rows, c.hidden});
  Tensor none;
  Call<op::RmsNormBackward>(rms_grad_x, grad_weight, c.grad_y, c.x, c.weight, rstd);
  Call<op::RmsNormBackward>(rms_x_only, none, c.grad_y, c.x, c.weight, rstd);
  ExpectSameBits(rms_x_only, rms_grad_x);
}

// mean(x^2) - mean(x)^2 in float32 would be off by several units here.
TEST_P(NormTest, VarianceSurvivesALargeMean) {
  constexpr std::int64_t kHidden = 768;
  std::vector<double> values;
  for (std::int64_t i = 0; i < kHidden; ++i)
    values.push_back(i % 2 == 0 ? 8193.0 : 8191.0);
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {1, kHidden}, values);
  Tensor out = MakeOutput(device(), DataType::kFloat32, {1, kHidden});
  Tensor mean = MakeOutput(device(), DataType::kFloat32, {1});
  Tensor rstd = MakeOutput(device(), DataType::kFloat32, {1});
  Call<op::LayerNorm>(out, mean, rstd, x, Tensor(), Tensor(), 0.0);
  ExpectEqual(mean, {8192.0});
  ExpectClose(rstd, {1.0}, {.operations = 4});
}

TEST_P(NormTest, ConstantRowsGiveTheBias) {
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {2, 3}, {4, 4, 4, 0, 0, 0});
  const Tensor weight = MakeTensor(device(), DataType::kFloat32, {3}, {1, 2, 3});
  const Tensor bias = MakeTensor(device(), DataType::kFloat32, {3}, {-1, 0.5, 7});
  Tensor out = MakeOutput(device(), DataType::kFloat32, {2, 3});
  Tensor mean = MakeOutput(device(), DataType::kFloat32, {2});
  Tensor rstd = MakeOutput(device(), DataType::kFloat32, {2});
  Call<op::LayerNorm>(out, mean, rstd, x, weight, bias, kEps);
  ExpectEqual(out, {-1, 0.5, 7, -1, 0.5, 7});
  ExpectEqual(mean, {4, 0});
}

TEST_P(NormTest, NanStaysInItsRow) {
  const Tensor x = MakeTensor(device(), DataType::kFloat32, {2, 2}, {std::nan(""), 1, 1, -1});
  Tensor out = MakeOutput(device(), DataType::kFloat32, {2, 2});
  Tensor mean = MakeOutput(device(), DataType::kFloat32, {2});
  Tensor rstd = MakeOutput(device(), DataType::kFloat32, {2});
  Call<op::LayerNorm>(out, mean, rstd, x, Tensor(), Tensor(), 0.0);
  const std::vector<double> values = ToDoubles(out);
  EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]));
  EXPECT_EQ(values[2], 1.0);
  EXPECT_EQ(values[3], -1.0);
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(NormTest);

}  // namespace
}  // namespace infini_train
