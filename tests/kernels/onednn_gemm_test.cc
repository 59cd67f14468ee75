// The matrix product by oneDNN, on any machine: the op takes it only where it is the faster way.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/core/tensor.h"
#include "infini_train/kernels/cpu/gemm/onednn.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using cpu::GemmProblem;
using cpu::MatrixLayout;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;

void Check(GemmProblem p, bool with_bias) {
  const auto matrix = [](std::int64_t rows, std::int64_t columns, MatrixLayout layout,
                         DataType dtype, std::uint64_t seed) {
    const Tensor memory =
        MakeTensor({}, dtype, {rows * columns}, RandomValues(rows * columns, -1, 1, seed));
    return memory.AsStrided({rows, columns}, {layout.row, layout.column}, 0);
  };
  const Tensor a = matrix(p.m, p.k, p.a, p.input, 1);
  const Tensor b = matrix(p.k, p.n, p.b, p.input, 2);
  const Tensor c = matrix(p.m, p.n, p.c, p.output, 3);
  const Tensor bias = matrix(1, p.n, cpu::RowMajor(p.n), p.input, 4);
  const std::vector<double> av = ToDoubles(a), bv = ToDoubles(b), biases = ToDoubles(bias);
  std::vector<double> expected = ToDoubles(c), scales(p.m * p.n);
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      double& sum = expected[i * p.n + j];
      if (!p.accumulate) sum = 0;
      if (with_bias) sum += biases[j];
      double& scale = scales[i * p.n + j];
      scale = 2 * std::abs(sum);
      for (std::int64_t k = 0; k < p.k; ++k) {
        const double term = av[i * p.k + k] * bv[k * p.n + j];
        sum += term;
        scale += std::abs(term);
      }
    }
  }
  if (!cpu::TryOneDnnGemm(p, c.raw_data(), a.raw_data(), b.raw_data(),
                          with_bias ? bias.raw_data() : nullptr)) {
    // Without an implementation nothing is written, and the caller takes another way.
    EXPECT_NE(p.input, DataType::kFloat32);
    test::ExpectEqual(c, ToDoubles(matrix(p.m, p.n, p.c, p.output, 3)));
    return;
  }
  test::ExpectClose(c, expected, {.operations = static_cast<double>(p.k) + 3}, scales);
}

TEST(OneDnnGemmTest, LayoutsTypesAndExtras) {
  constexpr std::int64_t kM = 37, kN = 50, kK = 29;
  for (const auto& [input, output] : {std::pair{DataType::kFloat32, DataType::kFloat32},
                                      {DataType::kBFloat16, DataType::kBFloat16},
                                      {DataType::kBFloat16, DataType::kFloat32},
                                      {DataType::kFloat16, DataType::kFloat16}}) {
    for (int round = 0; round < 2; ++round) {  // the second time from the cache
      for (int extras = 0; extras < 16; ++extras) {
        GemmProblem p{.m = kM, .n = kN, .k = kK, .input = input, .output = output};
        p.a = extras & 1 ? cpu::ColumnMajor(kM) : cpu::RowMajor(kK);
        p.b = extras & 2 ? cpu::ColumnMajor(kK) : cpu::RowMajor(kN);
        p.c = cpu::RowMajor(kN);
        p.accumulate = (extras & 4) != 0;
        SCOPED_TRACE(std::string(ToString(input)) + " to " + std::string(ToString(output)) +
                     ", extras " + std::to_string(extras));
        Check(p, (extras & 8) != 0);
      }
    }
  }
}

// More problems than a thread remembers.
TEST(OneDnnGemmTest, ManyProblems) {
  for (std::int64_t m = 1; m <= 40; ++m) {
    for (std::int64_t n = 1; n <= 5; ++n) {
      GemmProblem p{.m = m, .n = n, .k = 3};
      p.a = cpu::RowMajor(3);
      p.b = cpu::ColumnMajor(3);
      p.c = cpu::RowMajor(n);
      Check(p, false);
    }
  }
}

}  // namespace
}  // namespace infini_train
