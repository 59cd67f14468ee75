#pragma once

#include "backends/simt/dialect.h"
#include "infini_train/core/tensor.h"

namespace infini_train::simt {

/// The ops GroupedGemm and KGroupedGemm, each in one launch, on any layout that they allow. A
/// provider with faster kernels calls them for what those do not take.
void PortableGroupedGemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                         const Tensor& counts, bool accumulate);
void PortableKGroupedGemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                          const Tensor& counts, bool accumulate);

}  // namespace infini_train::simt
