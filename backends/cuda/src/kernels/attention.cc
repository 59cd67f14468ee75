#include "backends/simt/kernels/attention/attention.h"

#include <string>

#include "backends/simt/kernels/attention/attention_decode.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/attention_kernel.h"
#include "infini_train/ops/kernel_library.h"
#include "kernels/cudnn_attention.h"

namespace infini_train::cuda {
namespace {

/// Runs cuDNN's kernel where the policy, and cuDNN, take the problem; else the caller is to run the
/// shared one. That for a few queries reads each key once, too, and needs no plan.
template <typename Run>
bool RunCudnn(const Tensor& q, const Tensor& cumulative_lengths, Run run) {
  if (q.size(2) <= simt::kDecodeQueries || GetAttentionKernel() == AttentionKernel::kPortable)
    return false;
  if (!cumulative_lengths.defined() && run()) return true;
  if (GetAttentionKernel() == AttentionKernel::kFused) {
    throw Error(std::string("attention: cuDNN does not take ") +
                (cumulative_lengths.defined() ? "packed samples" : "this type, size or layout") +
                "; expected auto or portable");
  }
  return false;
}

void Attention(const KernelContext& context, Tensor& out, Tensor& lse, const Tensor& q,
               const Tensor& k, const Tensor& v, const Tensor& cumulative_lengths,
               const AttentionParams& params) {
  const simt::Context launch(context, OpId::kAttention);
  const simt::detail::LaunchDevice device(launch);
  if (RunCudnn(q, cumulative_lengths,
               [&] { return CudnnAttention(context, out, lse, q, k, v, params); })) {
    return;
  }
  simt::PortableAttention(launch, out, lse, q, k, v, cumulative_lengths, params);
}

void AttentionBackward(const KernelContext& context, Tensor& grad_q, Tensor& grad_k, Tensor& grad_v,
                       const Tensor& grad_out, const Tensor& out, const Tensor& lse,
                       const Tensor& q, const Tensor& k, const Tensor& v,
                       const Tensor& cumulative_lengths, const AttentionParams& params) {
  const simt::Context launch(context, OpId::kAttentionBackward);
  const simt::detail::LaunchDevice device(launch);
  if (RunCudnn(q, cumulative_lengths, [&] {
        return CudnnAttentionBackward(context, grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v,
                                      params);
      })) {
    return;
  }
  simt::PortableAttentionBackward(launch, grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v,
                                  cumulative_lengths, params);
}

}  // namespace

REGISTER_KERNEL(kCUDA, Attention, &Attention);
REGISTER_KERNEL(kCUDA, AttentionBackward, &AttentionBackward);
REGISTER_KERNEL_LIBRARY(kCUDA, Attention, &CudnnVersion);
REGISTER_KERNEL_LIBRARY(kCUDA, AttentionBackward, &CudnnVersion);

}  // namespace infini_train::cuda
