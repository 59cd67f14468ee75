#pragma once

#include <string>

#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/params.h"

namespace infini_train::cuda {

/// The ops Attention and AttentionBackward by cuDNN's fused kernels. False where cuDNN does not
/// take the problem; the outputs are then undefined, for another kernel to write.
///
/// Taken are the half types with head sizes that are multiples of 8, without dropout, if every
/// query has a key, and in layouts of whole vectors of 16 bytes. Where the process is
/// deterministic, gradients are added in a fixed order, which needs a workspace of the size of all
/// attention weights; batch and heads are then worked on in pieces whose workspace is at most a
/// 64th of the device's memory.
///
/// The context's device is CUDA's current one.
bool CudnnAttention(const KernelContext& context, Tensor& out, Tensor& lse, const Tensor& q,
                    const Tensor& k, const Tensor& v, const AttentionParams& params);
bool CudnnAttentionBackward(const KernelContext& context, Tensor& grad_q, Tensor& grad_k,
                            Tensor& grad_v, const Tensor& grad_out, const Tensor& out,
                            const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                            const AttentionParams& params);

/// "cuDNN 9.19.0", of the library that is loaded.
std::string CudnnVersion();

}  // namespace infini_train::cuda
