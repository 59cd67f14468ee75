#pragma once

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"

/// Matrix products as compositions of other ops: what their kernels do on a device, or for
/// operands, that have no faster way. The same on every device.
namespace infini_train {

/// The fused products of op_list.h by the plain ops that define them.
INFINI_TRAIN_API void ComposeGemmGelu(Tensor& out, Tensor& pre, const Tensor& a, const Tensor& b,
                                      const Tensor& bias);
INFINI_TRAIN_API void ComposeGemmGeluBackward(Tensor& out, Tensor& column_sums, const Tensor& a,
                                              const Tensor& b, const Tensor& pre);
INFINI_TRAIN_API void ComposeGemmRowSums(Tensor& out, Tensor& row_sums, const Tensor& a,
                                         const Tensor& b, bool accumulate);

/// The op NormGemv by the plain ops that define it.
INFINI_TRAIN_API void ComposeNormGemv(Tensor& out, const Tensor& x, const Tensor& norm_weight,
                                      const Tensor& weight, const Tensor& bias,
                                      const Tensor& residual, double eps, bool gated);

/// The sums of the rows of a [M, K] alone; row_sums [M] may be float32 where a is narrower.
INFINI_TRAIN_API void RowSums(Tensor& row_sums, const Tensor& a);
/// The sums of the columns of a [M, N] alone; nothing where column_sums [N] is undefined.
INFINI_TRAIN_API void ColumnSums(Tensor& column_sums, const Tensor& a);

/// Whether the policy (matmul_precision.h) asks for float64 where the operands are of `dtype`.
INFINI_TRAIN_API bool MultipliesInFloat64(DataType dtype) noexcept;

/// The op Gemm in float64: operands are converted to it, and the result from it.
INFINI_TRAIN_API void GemmInFloat64(Tensor& out, const Tensor& a, const Tensor& b,
                                    const Tensor& bias, bool accumulate);
/// The same for GroupedGemm and KGroupedGemm.
INFINI_TRAIN_API void GroupedGemmInFloat64(Tensor& out, const Tensor& a, const Tensor& b,
                                           const Tensor& counts, bool accumulate);
INFINI_TRAIN_API void KGroupedGemmInFloat64(Tensor& out, const Tensor& a, const Tensor& b,
                                            const Tensor& counts, bool accumulate);

}  // namespace infini_train
