#pragma once

#include <cstdint>
#include <string_view>

#include "infini_train/core/api.h"

namespace infini_train {

/// Which kernel of a device computes attention, where it has two.
enum class AttentionKernel : std::uint8_t {
  kAuto,      ///< the vendor's library where it takes the problem, else the provider's own
  kPortable,  ///< the provider's own
  kFused,     ///< the vendor's library; Error for a problem that it does not take
};

/// The process's policy, kAuto at the start. A few queries at a time, as in generation, are the
/// provider's own under each. A captured graph keeps the policy of its capture.
INFINI_TRAIN_API void SetAttentionKernel(AttentionKernel kernel) noexcept;
INFINI_TRAIN_API AttentionKernel GetAttentionKernel() noexcept;

/// "auto", "portable" or "fused". Throws Error naming these otherwise.
INFINI_TRAIN_API AttentionKernel ParseAttentionKernel(std::string_view name);

}  // namespace infini_train
