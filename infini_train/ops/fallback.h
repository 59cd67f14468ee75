#pragma once

#include <cstdint>
#include <utility>

#include "infini_train/core/api.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train {

/// What happens when a device has no kernel for an op: the CPU's kernel runs on copies of the
/// memory that the arguments cover, in stream order, and the written memory is copied back. The
/// result is that of the CPU; views, gradients and versions behave as with a kernel of the device.
/// Gaps between the elements of a written argument are written back as they were.
/// The calling thread waits for the stream, so an op that falls back is refused while the stream is
/// captured into a graph.
enum class FallbackMode : std::uint8_t {
  kWarn,    ///< says so on stderr, once for each op; the default
  kError,   ///< throws Error
  kSilent,  ///< does it without a word
};

/// The environment's INFINI_TRAIN_FALLBACK (warn, error or silent), unless SetFallbackMode was
/// called. Throws Error when the variable has another value.
INFINI_TRAIN_API FallbackMode GetFallbackMode();
INFINI_TRAIN_API void SetFallbackMode(FallbackMode mode);

/// How often the op ran on the CPU for another device, since the start or the last reset.
INFINI_TRAIN_API std::uint64_t FallbackCount(OpId id);
INFINI_TRAIN_API void ResetFallbackCounts();

/// For a kernel that does not take all that its op allows (a dtype, a layout): runs the CPU's
/// kernel as if the device had none, `CallOnCpu<op::Sort>(context, values, indices, x, false)`.
template <typename Op, typename... Arguments>
void CallOnCpu(const KernelContext& context, Arguments&&... arguments) {
  reinterpret_cast<typename Op::Fn*>(detail::FindFallback(context.device.type(), Op::kId))(
      context, std::forward<Arguments>(arguments)...);
}

}  // namespace infini_train
