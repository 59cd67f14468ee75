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

constexpr double kEpsilon = 1e-5;

/// [B, H, T, D], with heads of one vector for each lane, of less and of more.
const Dims kShapes[] = {{1, 1, 1, 2},    {2, 3, 5, 8},   {2, 2, 3, 70},
                        {1, 3, 70, 64},  {1, 2, 2, 128}, {1, 1, 2, 300},
                        {1, 2, 2, 1024}, {0, 2, 3, 4},   {1, 2, 0, 4}};

/// [B, H, T, D] in a packed projection, with other heads on both sides.
Tensor Packed(const Tensor& flat, const Dims& shape) {
  const std::int64_t row = 3 * shape[1] * shape[3];
  return flat.AsStrided(shape, {shape[2] * row, shape[3], row, 1},
                        Numel(shape) == 0 ? 0 : shape[1] * shape[3]);
}

struct Problem {
  Dims shape;
  Tensor x, grad_y, weight, cos, sin;
};

class NormRotaryTest : public DeviceTest {
 protected:
  static Problem Make(const Dims& shape, DataType dtype, DataType weight_dtype) {
    const DataType stat = PromoteTypes(dtype, DataType::kFloat32);
    const std::int64_t pairs = shape[3] / 2;
    const std::vector<double> angles = RandomValues(shape[2] * pairs, -7, 7, 6);
    std::vector<double> cosines;
    std::vector<double> sines;
    for (const double angle : angles) {
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
    const auto packed = [&](std::uint64_t seed) {
      const std::int64_t count = 3 * Numel(shape);
      return Packed(MakeTensor(device(), dtype, {count}, RandomValues(count, -1, 1, seed)), shape);
    };
    return {shape,
            packed(1),
            packed(2),
            MakeTensor(device(), weight_dtype, {shape[3]}, RandomValues(shape[3], 0.5, 1.5, 3)),
            MakeTensor(device(), stat, {shape[2], pairs}, cosines, test::Layout::kSliced),
            MakeTensor(device(), stat, {shape[2], pairs}, sines)};
  }
};

struct Reference {
  std::vector<double> out, rstd, grad_x, grad_weight;
  double largest_rstd = 1;
};

/// The definition, head by head. The backward uses `rstd` as given.
Reference ReferenceOf(const Problem& problem) {
  const std::int64_t size = problem.shape[3];
  const std::int64_t pairs = size / 2;
  const std::int64_t positions = problem.shape[2];
  const std::vector<double> x = ToDoubles(problem.x), grad_y = ToDoubles(problem.grad_y);
  const std::vector<double> w = ToDoubles(problem.weight);
  const std::vector<double> cos = ToDoubles(problem.cos), sin = ToDoubles(problem.sin);
  Reference r{.out = x, .rstd = {}, .grad_x = x, .grad_weight = std::vector<double>(w.size())};
  for (std::int64_t row = 0; row < Numel(problem.shape) / size; ++row) {
    const double* values = x.data() + row * size;
    const double* grads = grad_y.data() + row * size;
    const double* c = cos.data() + row % positions * pairs;
    const double* s = sin.data() + row % positions * pairs;
    double squares = 0;
    for (std::int64_t j = 0; j < size; ++j)
      squares += values[j] * values[j];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(size) + kEpsilon);
    r.rstd.push_back(rstd);
    r.largest_rstd = std::max(r.largest_rstd, rstd);
    std::vector<double> g(w.size());
    double mean = 0;
    for (std::int64_t j = 0; j < size; ++j) {
      const std::int64_t p = j % pairs;
      const std::int64_t other = j < pairs ? j + pairs : j - pairs;
      const double sign = j < pairs ? -1 : 1;
      const auto at = static_cast<std::size_t>(j);
      r.out[static_cast<std::size_t>(row * size + j)] =
          rstd * (values[j] * w[at] * c[p] +
                  sign * values[other] * w[static_cast<std::size_t>(other)] * s[p]);
      g[at] = grads[j] * c[p] - sign * grads[other] * s[p];
      mean += g[at] * w[at] * values[j] * rstd / static_cast<double>(size);
      r.grad_weight[at] += g[at] * values[j] * rstd;
    }
    for (std::int64_t j = 0; j < size; ++j) {
      const auto at = static_cast<std::size_t>(j);
      r.grad_x[static_cast<std::size_t>(row * size + j)] =
          rstd * (g[at] * w[at] - values[j] * rstd * mean);
    }
  }
  return r;
}

TEST_P(NormRotaryTest, NormalizesThenRotates) {
  for (const DataType dtype : kFloatingTypes) {
    for (const Dims& shape : kShapes) {
      SCOPED_TRACE(testing::Message() << ToString(dtype) << " " << shape.ToString());
      const Problem problem = Make(shape, dtype, dtype);
      const Reference expected = ReferenceOf(problem);
      Tensor out = Packed(MakeOutput(device(), dtype, {3 * Numel(shape)}), shape);
      Tensor rstd = MakeOutput(device(), problem.cos.dtype(), {shape[0], shape[1], shape[2]});
      Call<op::NormRotary>(out, rstd, problem.x, problem.weight, problem.cos, problem.sin,
                           kEpsilon);
      const auto operations = static_cast<double>(10 + shape[3]);
      ExpectClose(rstd, expected.rstd, {.operations = operations, .scale = expected.largest_rstd});
      ExpectClose(out, expected.out,
                  {.operations = operations, .scale = 4 * expected.largest_rstd});
    }
  }
}

TEST_P(NormRotaryTest, Gradients) {
  for (const DataType dtype : kFloatingTypes) {
    for (const Dims& shape : kShapes) {
      SCOPED_TRACE(testing::Message() << ToString(dtype) << " " << shape.ToString());
      // Weights of half types may be float32.
      const DataType weight_dtype = PromoteTypes(dtype, DataType::kFloat32);
      const Problem problem = Make(shape, dtype, weight_dtype);
      const Reference expected = ReferenceOf(problem);
      const Tensor rstd =
          MakeTensor(device(), problem.cos.dtype(), {shape[0], shape[1], shape[2]}, expected.rstd);
      Tensor grad_x = Packed(MakeOutput(device(), dtype, {3 * Numel(shape)}), shape);
      Tensor grad_weight = MakeOutput(device(), weight_dtype, {shape[3]});
      const auto backward = [&](Tensor& grad_x, Tensor& grad_weight, const Tensor& grad_y) {
        Call<op::NormRotaryBackward>(grad_x, grad_weight, grad_y, problem.x, problem.weight, rstd,
                                     problem.cos, problem.sin);
      };
      backward(grad_x, grad_weight, problem.grad_y);
      const auto heads = static_cast<double>(Numel(shape) == 0 ? 0 : Numel(shape) / shape[3]);
      ExpectClose(
          grad_x, expected.grad_x,
          {.operations = static_cast<double>(20 + shape[3]), .scale = 8 * expected.largest_rstd});
      ExpectClose(grad_weight, expected.grad_weight,
                  {.operations = 20 + heads, .scale = 4 * heads * expected.largest_rstd});
      // In place, and without the weight's.
      Tensor in_place = problem.grad_y;
      Tensor none;
      backward(in_place, none, problem.grad_y);
      ExpectSameBits(in_place, grad_x);
    }
  }
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(NormRotaryTest);

}  // namespace
}  // namespace infini_train
