#include "infini_train/ops/attention_kernel.h"

#include <fmt/format.h>

#include <atomic>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

std::atomic<AttentionKernel> policy = AttentionKernel::kAuto;

}  // namespace

void SetAttentionKernel(AttentionKernel kernel) noexcept {
  policy = kernel;
}

AttentionKernel GetAttentionKernel() noexcept {
  return policy;
}

AttentionKernel ParseAttentionKernel(std::string_view name) {
  if (name == "auto") return AttentionKernel::kAuto;
  if (name == "portable") return AttentionKernel::kPortable;
  if (name == "fused") return AttentionKernel::kFused;
  throw Error(fmt::format("attention: expected auto, portable or fused, got '{}'", name));
}

}  // namespace infini_train
