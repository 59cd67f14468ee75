// Apart from the kernels: a provider with faster ones leaves this file out.
#include "backends/simt/kernels/gemm/grouped_gemm.h"
#include "infini_train/ops/gemm_composition.h"

namespace infini_train::simt {
namespace {

void GroupedGemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                 const Tensor& counts, bool accumulate) {
  if (MultipliesInFloat64(a.dtype())) {
    GroupedGemmInFloat64(out, a, b, counts, accumulate);
  } else {
    PortableGroupedGemm(context, out, a, b, counts, accumulate);
  }
}

void KGroupedGemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                  const Tensor& counts, bool accumulate) {
  if (MultipliesInFloat64(a.dtype())) {
    KGroupedGemmInFloat64(out, a, b, counts, accumulate);
  } else {
    PortableKGroupedGemm(context, out, a, b, counts, accumulate);
  }
}

}  // namespace

SIMT_REGISTER_KERNEL(GroupedGemm, &GroupedGemm);
SIMT_REGISTER_KERNEL(KGroupedGemm, &KGroupedGemm);

}  // namespace infini_train::simt
