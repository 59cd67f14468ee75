// Apart from the kernel: a provider with a library for FP8 products leaves this file out.
#include "backends/simt/kernels/fp8/fp8_gemm.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {

SIMT_REGISTER_KERNEL(Fp8Gemm, &PortableFp8Gemm);

}  // namespace infini_train::simt
