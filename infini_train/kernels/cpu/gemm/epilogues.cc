// Products with something behind them. A product reads and computes so much more than what it
// writes that a second pass over the result costs little here.

#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/gemm_composition.h"

namespace infini_train::cpu {
namespace {

void GemmGelu(const KernelContext&, Tensor& out, Tensor& pre, const Tensor& a, const Tensor& b,
              const Tensor& bias) {
  ComposeGemmGelu(out, pre, a, b, bias);
}

void GemmGeluBackward(const KernelContext&, Tensor& out, Tensor& column_sums, const Tensor& a,
                      const Tensor& b, const Tensor& pre) {
  ComposeGemmGeluBackward(out, column_sums, a, b, pre);
}

void GemmRowSums(const KernelContext&, Tensor& out, Tensor& row_sums, const Tensor& a,
                 const Tensor& b, bool accumulate) {
  ComposeGemmRowSums(out, row_sums, a, b, accumulate);
}

}  // namespace

REGISTER_KERNEL(kCPU, GemmGelu, &GemmGelu);
REGISTER_KERNEL(kCPU, GemmGeluBackward, &GemmGeluBackward);
REGISTER_KERNEL(kCPU, GemmRowSums, &GemmRowSums);

}  // namespace infini_train::cpu
