#include "infini_train/core/device/device_guard.h"

#include <memory>

#include "backends/runtime/runtime_device_guard.h"
#include "backends/simt/emulator/options.h"
#include "backends/simt/emulator/platform.h"
#include "runtime/protection.h"
#include "runtime/sim_runtime.h"

namespace infini_train::sim {
namespace {

std::unique_ptr<DeviceGuardImpl> MakeDeviceGuard() {
  if (!simt::emulator::GetOptions().check_memory)
    return std::make_unique<backend::RuntimeDeviceGuard<SimRuntime>>();
  simt::emulator::SetLaunchHooks({&protection::BeginWork, &protection::EndWork});
  return std::make_unique<backend::RuntimeDeviceGuard<CheckedRuntime>>();
}

const detail::DeviceGuardRegistrar registrar(DeviceType::kPrivateUse1, &MakeDeviceGuard, __FILE__,
                                             __LINE__);

}  // namespace
}  // namespace infini_train::sim
