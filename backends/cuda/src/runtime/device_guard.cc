#include "infini_train/core/device/device_guard.h"

#include <infini/rt/nvidia/runtime.h>

#include "backends/runtime/runtime_device_guard.h"
#include "common/primary_context.h"

namespace infini_train::cuda {
namespace {

struct CudaRuntime : ::infini::rt::runtime::Runtime<::infini::rt::Device::Type::kNvidia> {
  static bool IsInUse(int device) { return HasPrimaryContext(device); }
};

using DeviceGuard = backend::RuntimeDeviceGuard<CudaRuntime>;

REGISTER_DEVICE_GUARD(kCUDA, DeviceGuard);

}  // namespace
}  // namespace infini_train::cuda
