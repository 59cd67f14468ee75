#include "infini_train/core/device/device_guard.h"

#include <infini/rt/nvidia/runtime.h>

#include "backends/runtime/runtime_device_guard.h"

namespace infini_train::cuda {
namespace {

using DeviceGuard = backend::RuntimeDeviceGuard<
    ::infini::rt::runtime::Runtime<::infini::rt::Device::Type::kNvidia>>;

REGISTER_DEVICE_GUARD(kCUDA, DeviceGuard);

}  // namespace
}  // namespace infini_train::cuda
