#include "infini_train/ops/dispatch.h"

namespace infini_train {

void FrobnicateKernel(const KernelContext&, Tensor&, const Tensor&) {}
REGISTER_KERNEL(kPrivateUse1, Frobnicate, &FrobnicateKernel);

}  // namespace infini_train
