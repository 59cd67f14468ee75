// Apart from the kernel: a provider with a library for products leaves this file out.
#include "backends/simt/kernels/gemm/gemm.h"
#include "infini_train/ops/gemm_composition.h"

namespace infini_train::simt {
namespace {

void Gemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
          bool accumulate) {
  if (MultipliesInFloat64(a.dtype())) {
    GemmInFloat64(out, a, b, bias, accumulate);
  } else {
    PortableGemm(context, out, a, b, bias, accumulate);
  }
}

}  // namespace

SIMT_REGISTER_KERNEL(Gemm, &Gemm);

}  // namespace infini_train::simt
