#include <infini/rt/cpu/runtime.h>
#include <infini/rt/device.h>

#include "backends/runtime/runtime_device_guard.h"

namespace infini_train::sim {
namespace {

using DeviceGuard =
    backend::RuntimeDeviceGuard<backend::rt::Runtime<::infini::rt::Device::Type::kCpu>>;
REGISTER_DEVICE_GUARD(kPrivateUse1, DeviceGuard);

}  // namespace
}  // namespace infini_train::sim
