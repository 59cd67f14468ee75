// The policy for float32 products: what each of its values promises.

#include "infini_train/ops/matmul_precision.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"
#include "tests/ops/gemm_reference.h"

namespace infini_train {
namespace {

using test::Layout;
using test::MakeOutput;
using test::MakeTensor;
using test::Multiply;
using test::RandomValues;
using test::ToDoubles;

class MatmulPrecisionTest : public DeviceTest {
 protected:
  void TearDown() override { SetMatmulPrecision(MatmulPrecision::kFloat32); }
};

/// Numbers whose products have exact sums in float64, in any order, but not in float32: large ones
/// that cancel in pairs, and small ones between.
std::vector<double> CancellingValues(std::int64_t rows, std::int64_t depth) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < depth; ++k) {
      const double large = k % 4 == 0 ? 0x1p30 : (k % 4 == 2 ? -0x1p30 : 0);
      values.push_back(large != 0 ? large : static_cast<double>((i * 7 + k * 3) % 64 - 32) / 64);
    }
  }
  return values;
}

std::vector<double> Rounded(std::vector<double> values) {
  for (double& value : values)
    value = static_cast<float>(value);
  return values;
}

TEST_P(MatmulPrecisionTest, Float64SumsAreThoseOfFloat64Rounded) {
  constexpr std::int64_t kM = 20, kN = 24, kK = 64;
  const std::vector<double> left = CancellingValues(kM, kK);
  const Tensor ones = MakeTensor({}, DataType::kFloat64, {kK, kN}, std::vector<double>(kK * kN, 1));
  for (const Layout layout : {Layout::kContiguous, Layout::kTransposed, Layout::kSliced}) {
    const Tensor a = MakeTensor(device(), DataType::kFloat32, {kM, kK}, left, layout);
    const Tensor b = MakeTensor(device(), DataType::kFloat32, {kK, kN}, ToDoubles(ones), layout);
    const Tensor bias =
        MakeTensor(device(), DataType::kFloat32, {kN}, std::vector<double>(kN, 0x1p-20));
    for (const bool accumulate : {false, true}) {
      Tensor out = MakeTensor(device(), DataType::kFloat32, {kM, kN},
                              std::vector<double>(kM * kN, 0x1p-10), layout);
      const std::vector<double> former = accumulate ? ToDoubles(out) : std::vector<double>();
      SetMatmulPrecision(MatmulPrecision::kFloat64);
      Call<op::Gemm>(out, a, b, bias, accumulate);
      test::ExpectEqual(out, Rounded(Multiply(a, b, ToDoubles(bias), former).values));
      test::ExpectGapsUntouched(out);
    }
  }
}

TEST_P(MatmulPrecisionTest, Float64CoversLowerTypesBatchesAndEpilogues) {
  SetMatmulPrecision(MatmulPrecision::kFloat64);
  std::vector<double> values = CancellingValues(12, 16);
  const Tensor a = MakeTensor(device(), DataType::kBFloat16, {3, 4, 16}, values);
  const Tensor b = MakeTensor(device(), DataType::kBFloat16, {3, 16, 5},
                              std::vector<double>(3 * 16 * 5, 1), Layout::kExpanded);
  Tensor out = MakeOutput(device(), DataType::kFloat32, {3, 4, 5});
  Call<op::Gemm>(out, a, b, Tensor(), false);
  test::ExpectEqual(out, Rounded(Multiply(a, b, {}, {}).values));

  const Tensor matrix = a.AsStrided({12, 16}, {16, 1}, a.offset());
  const Tensor weight = b.AsStrided({16, 5}, {b.strides()[1], b.strides()[2]}, b.offset());
  const std::vector<double> product = Multiply(matrix, weight, {}, {}).values;
  Tensor sums = MakeOutput(device(), DataType::kFloat32, {12});
  Tensor grad = MakeOutput(device(), DataType::kFloat32, {12, 5});
  Call<op::GemmRowSums>(grad, sums, matrix, weight, false);
  test::ExpectEqual(grad, Rounded(product));

  const Tensor wide = MakeTensor(device(), DataType::kFloat32, {12, 16}, values);
  const Tensor wide_weight =
      MakeTensor(device(), DataType::kFloat32, {16, 5}, std::vector<double>(80, 1));
  Tensor activated = MakeOutput(device(), DataType::kFloat32, {12, 5});
  Tensor pre = MakeOutput(device(), DataType::kFloat32, {12, 5});
  Call<op::GemmGelu>(activated, pre, wide, wide_weight, Tensor());
  test::ExpectEqual(pre, Rounded(product));
}

// Leaving 11 or 8 significant bits to the operands of a product moves it by two roundings, twice as
// far where a device cuts the other bits off.
TEST_P(MatmulPrecisionTest, LowerPrecisionsAreAsExactAsTheirTypes) {
  const Tensor a =
      MakeTensor(device(), DataType::kFloat32, {64, 96}, RandomValues(64 * 96, -1, 1, 1));
  const Tensor b =
      MakeTensor(device(), DataType::kFloat32, {96, 72}, RandomValues(96 * 72, -1, 1, 2));
  const test::Product expected = Multiply(a, b, {}, {});
  for (const auto& [precision, type] : {std::pair{MatmulPrecision::kTf32, DataType::kFloat16},
                                        {MatmulPrecision::kBFloat16, DataType::kBFloat16}}) {
    SetMatmulPrecision(precision);
    Tensor out = MakeOutput(device(), DataType::kFloat32, {64, 72});
    Call<op::Gemm>(out, a, b, Tensor(), false);
    test::ExpectClose(out, expected.values, {.operations = 4.1, .compute = type}, expected.scales);
  }
  for (const MatmulPrecision precision : {MatmulPrecision::kFloat32, MatmulPrecision::kFp8}) {
    SetMatmulPrecision(precision);
    Tensor out = MakeOutput(device(), DataType::kFloat32, {64, 72});
    Call<op::Gemm>(out, a, b, Tensor(), false);
    test::ExpectClose(out, expected.values, {.operations = 98}, expected.scales);
  }
}

TEST(MatmulPrecision, HasNames) {
  EXPECT_EQ(ParseMatmulPrecision("fp64"), MatmulPrecision::kFloat64);
  EXPECT_EQ(ParseMatmulPrecision("fp32"), MatmulPrecision::kFloat32);
  EXPECT_EQ(ParseMatmulPrecision("tf32"), MatmulPrecision::kTf32);
  EXPECT_EQ(ParseMatmulPrecision("bf16"), MatmulPrecision::kBFloat16);
  EXPECT_EQ(ParseMatmulPrecision("fp8"), MatmulPrecision::kFp8);
  EXPECT_THROW(ParseMatmulPrecision("fp16"), Error);
  EXPECT_THROW(ParseMatmulPrecision(""), Error);
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(MatmulPrecisionTest);

}  // namespace
}  // namespace infini_train
