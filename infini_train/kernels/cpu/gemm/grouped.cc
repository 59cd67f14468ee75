// Products by groups of rows: one product after the other, each on all threads.

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "infini_train/core/error.h"
#include "infini_train/kernels/cpu/gemm/gemm.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/gemm_composition.h"

namespace infini_train::cpu {
namespace {

void CheckCounts(std::string_view op, const Tensor& counts, std::int64_t rows) {
  const auto* count = counts.data<std::int64_t>();
  std::int64_t left = rows;
  for (std::int64_t e = 0; e < counts.numel(); ++e) {
    if (count[e] < 0 || count[e] > left) {
      throw Error(fmt::format("{}: group {} has {} rows, expected 0 to the {} of {} that are left",
                              op, e, count[e], left, rows));
    }
    left -= count[e];
  }
}

void GroupedGemm(const KernelContext&, Tensor& out, const Tensor& a, const Tensor& b,
                 const Tensor& counts, bool accumulate) {
  GemmProblem problem = DescribeGemm("GroupedGemm", out, a, b, accumulate);
  const std::int64_t rows = problem.m;
  CheckCounts("GroupedGemm", counts, rows);
  if (MultipliesInFloat64(a.dtype())) {
    GroupedGemmInFloat64(out, a, b, counts, accumulate);
    return;
  }
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < counts.numel(); ++e) {
    problem.m = counts.data<std::int64_t>()[e];
    RunGemm(problem, AddressAt(out, row * out.strides()[0]), AddressAt(a, row * a.strides()[0]),
            AddressAt(b, e * b.strides()[0]));
    row += problem.m;
  }
  if (!accumulate && row < rows) {
    Tensor rest = out.AsStrided({rows - row, out.size(1)}, out.strides(),
                                out.offset() + row * out.strides()[0]);
    Call<op::Fill>(rest, 0);
  }
}

void KGroupedGemm(const KernelContext&, Tensor& out, const Tensor& a, const Tensor& b,
                  const Tensor& counts, bool accumulate) {
  GemmProblem problem = DescribeGemm("KGroupedGemm", out, a, b, accumulate);
  CheckCounts("KGroupedGemm", counts, problem.k);
  if (MultipliesInFloat64(a.dtype())) {
    KGroupedGemmInFloat64(out, a, b, counts, accumulate);
    return;
  }
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < counts.numel(); ++e) {
    problem.k = counts.data<std::int64_t>()[e];
    RunGemm(problem, AddressAt(out, e * out.strides()[0]), AddressAt(a, row * a.strides()[1]),
            AddressAt(b, row * b.strides()[0]));
    row += problem.k;
  }
}

}  // namespace

REGISTER_KERNEL(kCPU, GroupedGemm, &GroupedGemm);
REGISTER_KERNEL(kCPU, KGroupedGemm, &KGroupedGemm);

}  // namespace infini_train::cpu
