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
using test::kFloatingTypes;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;

constexpr double kEpsilon = 1e-5;

struct Problem {
  std::int64_t rows, outputs, inputs;
  bool norm = false, bias = false, residual = false, gated = false;
};

class NormGemvTest : public DeviceTest {
 protected:
  static void Check(const Problem& p, DataType dtype, DataType norm_dtype) {
    SCOPED_TRACE(testing::Message()
                 << ToString(dtype) << " " << p.rows << " " << p.outputs << " " << p.inputs
                 << (p.norm ? " norm" : "") << (p.bias ? " bias" : "")
                 << (p.residual ? " residual" : "") << (p.gated ? " gated" : ""));
    const std::int64_t products = p.gated ? 2 * p.outputs : p.outputs;
    const auto random = [&](const Dims& shape, DataType type, std::uint64_t seed) {
      return MakeTensor(device(), type, shape, RandomValues(Numel(shape), -1, 1, seed));
    };
    const Tensor x = random({p.rows, p.inputs}, dtype, 1);
    const Tensor norm = p.norm ? random({p.inputs}, norm_dtype, 2) : Tensor();
    const Tensor weight = random({products, p.inputs}, dtype, 3);
    const Tensor bias = p.bias ? random({products}, dtype, 4) : Tensor();
    const Tensor residual = p.residual ? random({p.rows, p.outputs}, dtype, 5) : Tensor();
    Tensor out = MakeOutput(device(), dtype, {p.rows, p.outputs});
    Call<op::NormGemv>(out, x, norm, weight, bias, residual, kEpsilon, p.gated);

    const std::vector<double> xs = ToDoubles(x), ws = ToDoubles(weight);
    const auto values = [](const Tensor& tensor) {
      return tensor.defined() ? ToDoubles(tensor) : std::vector<double>();
    };
    const std::vector<double> ns = values(norm), bs = values(bias), rs = values(residual);
    std::vector<double> expected;
    for (std::int64_t m = 0; m < p.rows; ++m) {
      double squares = 0;
      for (std::int64_t k = 0; k < p.inputs; ++k)
        squares += xs[m * p.inputs + k] * xs[m * p.inputs + k];
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(p.inputs) + kEpsilon);
      const auto product = [&](std::int64_t n) {
        double sum = p.bias ? bs[n] : 0;
        for (std::int64_t k = 0; k < p.inputs; ++k)
          sum += xs[m * p.inputs + k] * (p.norm ? rstd * ns[k] : 1) * ws[n * p.inputs + k];
        return sum;
      };
      for (std::int64_t n = 0; n < p.outputs; ++n) {
        double result = product(n);
        if (p.gated) result = result / (1 + std::exp(-result)) * product(n + p.outputs);
        expected.push_back(result + (p.residual ? rs[m * p.outputs + n] : 0));
      }
    }
    // What is normalised, the product and the activation may be rounded on their way.
    const bool is_half = SizeOf(dtype) == 2;
    const double scale = std::sqrt(static_cast<double>(p.inputs)) + 2;
    ExpectClose(out, expected,
                {.operations = is_half ? 6 : static_cast<double>(20 + p.inputs),
                 .scale = p.gated ? scale * scale : scale,
                 .compute = is_half ? dtype : DataType::kFloat32});
  }
};

TEST_P(NormGemvTest, EveryPartAndType) {
  for (const DataType dtype : kFloatingTypes) {
    for (const bool norm : {false, true}) {
      for (const bool residual : {false, true}) {
        for (const bool gated : {false, true}) {
          Check({1, 19, 72, norm, !gated, residual, gated}, dtype, dtype);
          Check({3, 9, 40, norm, gated, residual, gated}, dtype,
                PromoteTypes(dtype, DataType::kFloat32));
        }
      }
    }
  }
}

// One output of each group, fewer and more; rows of x one by one, together, and too many for that.
TEST_P(NormGemvTest, Sizes) {
  for (const std::int64_t rows : {1, 2, 5, 8, 9, 40}) {
    Check({rows, 17, 64, true}, DataType::kBFloat16, DataType::kBFloat16);
    Check({rows, 5, 33, true}, DataType::kFloat32, DataType::kFloat32);
  }
  for (const std::int64_t outputs : {1, 7, 8, 9, 70})
    Check({1, outputs, 24, true, false, true, true}, DataType::kFloat32, DataType::kFloat32);
  for (const std::int64_t inputs : {1, 8, 2047, 2048, 2056, 6000})
    Check({2, 3, inputs, true}, DataType::kBFloat16, DataType::kBFloat16);
  // Several batches of vectors of each row, several rows of each group.
  Check({1, 40, 4104, true, true, true, true}, DataType::kBFloat16, DataType::kFloat32);
  Check({3, 40, 2064, false, true, true}, DataType::kFloat32, DataType::kFloat32);
  // More outputs of a block than there is room for their sums at a time.
  Check({1, 2500, 24, true, true, true, true}, DataType::kBFloat16, DataType::kBFloat16);
  Check({4, 700, 40, false, true, true}, DataType::kFloat32, DataType::kFloat32);
  Check({2, 90, 5000, true, false, false, true}, DataType::kBFloat16, DataType::kBFloat16);
  Check({4, 700, 512, true, false, true, true}, DataType::kFloat16, DataType::kFloat32);
  Check({4, 4400, 512, false, true, true, true}, DataType::kBFloat16, DataType::kBFloat16);
  // As much as a block has room for, and more.
  for (const std::int64_t inputs : {4096, 5120})
    Check({4, 2, inputs, true}, DataType::kBFloat16, DataType::kBFloat16);
  for (const std::int64_t inputs : {16384, 30000})
    Check({1, 2, inputs, true}, DataType::kBFloat16, DataType::kBFloat16);
  Check({0, 2, 8}, DataType::kFloat32, DataType::kFloat32);
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(NormGemvTest);

}  // namespace
}  // namespace infini_train
