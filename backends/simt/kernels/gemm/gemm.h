#pragma once

#include "backends/simt/dialect.h"
#include "infini_train/core/tensor.h"

namespace infini_train::simt {

/// The op Gemm on any layout that it allows. A provider with a library for products calls it for
/// those that the library does not take.
void PortableGemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                  const Tensor& bias, bool accumulate);

}  // namespace infini_train::simt
