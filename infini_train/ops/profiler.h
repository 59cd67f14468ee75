#pragma once

#include "infini_train/core/api.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train {

/// Puts a range named after the op around each kernel in the profiler of its device
/// (DeviceGuardImpl::PushProfilerRange). Off at the start, and then free: calls go straight to the
/// kernels.
INFINI_TRAIN_API void SetProfilerRanges(bool enabled);
INFINI_TRAIN_API bool ProfilerRangesEnabled() noexcept;

/// A range of the caller's own for a scope, while ranges are on. `name` outlives the scope.
class INFINI_TRAIN_API ProfilerRange {
 public:
  ProfilerRange(Device device, const char* name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  DeviceGuardImpl* impl_ = nullptr;
};

namespace detail {

/// The kernel that a device registered, whatever surrounds it in calls.
AnyKernel RegisteredKernel(DeviceType type, OpId id) noexcept;
/// Runs the registered kernel of the context's device in a range, and records it (op_recorder.h).
AnyKernel ObservedKernel(OpId id) noexcept;
/// Decides what calls run, after a change of the kernel or of who observes.
void ChooseCalledKernel(DeviceType type, OpId id) noexcept;
/// The same for all ops of all devices.
void ChooseCalledKernels() noexcept;

}  // namespace detail
}  // namespace infini_train
