// Apart from the kernel: a provider with a library for products leaves this file out.
#include "backends/simt/kernels/gemm/gemm.h"

namespace infini_train::simt {

SIMT_REGISTER_KERNEL(Gemm, &PortableGemm);

}  // namespace infini_train::simt
