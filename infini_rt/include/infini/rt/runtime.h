#pragma once

#include <infini/rt/device.h>
#include <infini/rt/export.h>
#include <infini/rt/types.h>

namespace infini::rt {

/// The backend that `infini::rt::runtime` calls of this thread go to. A thread that never chose
/// follows the process default.
INFINI_RT_API Device::Type runtime_device_type();

/// Chooses the backend of the calling thread. A backend that this build does not contain gives
/// `kErrorInvalidDevice` and leaves the choice as it was.
INFINI_RT_API runtime::Error set_runtime_device_type(Device::Type type);

/// The backend of every thread that made no choice of its own: the accelerator if the build has
/// one, else the CPU, until it is set.
INFINI_RT_API Device::Type default_runtime_device_type();
INFINI_RT_API runtime::Error set_default_runtime_device_type(Device::Type type);

/// Whether this build contains the backend.
INFINI_RT_API bool runtime_device_type_enabled(Device::Type type);

/// Chooses a backend for the calling thread for as long as it lives, then restores the thread's
/// earlier state, "never chose" included.
class RuntimeDeviceTypeGuard {
 public:
  INFINI_RT_API explicit RuntimeDeviceTypeGuard(Device::Type type);
  INFINI_RT_API ~RuntimeDeviceTypeGuard();
  RuntimeDeviceTypeGuard(const RuntimeDeviceTypeGuard&) = delete;
  RuntimeDeviceTypeGuard& operator=(const RuntimeDeviceTypeGuard&) = delete;

  /// What the choice returned.
  runtime::Error status() const { return status_; }

 private:
  int previous_;
  runtime::Error status_;
};

namespace runtime {

/// One backend: a struct of static functions with CUDA's names. The header of each enabled backend
/// (`<infini/rt/cpu/runtime.h>` and so on) specialises it; a vendor's header needs the vendor's
/// SDK.
template <Device::Type kType>
struct Runtime;

}  // namespace runtime

}  // namespace infini::rt
