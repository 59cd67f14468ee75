#include "infini_train/core/device/device_guard.h"

#include <optional>

#include "backends/runtime/runtime_device_guard.h"
#include "backends/simt/emulator/options.h"
#include "backends/simt/emulator/platform.h"
#include "backends/simt/emulator/traffic.h"
#include "runtime/protection.h"
#include "runtime/sim_runtime.h"

namespace infini_train::sim {
namespace {

class SimDeviceGuard final : public backend::RuntimeDeviceGuard<SimRuntime> {
 public:
  SimDeviceGuard() {
    if (simt::emulator::GetOptions().check_memory)
      simt::emulator::SetLaunchHooks({&protection::BeginWork, &protection::EndWork});
  }

  std::optional<DeviceTraffic> Traffic() const override {
    const simt::emulator::Traffic traffic = simt::emulator::GetTraffic();
    return DeviceTraffic{traffic.bytes_read, traffic.bytes_written};
  }
};

REGISTER_DEVICE_GUARD(kPrivateUse1, SimDeviceGuard);

}  // namespace
}  // namespace infini_train::sim
