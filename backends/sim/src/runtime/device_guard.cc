#include "infini_train/core/device/device_guard.h"

#include <memory>
#include <optional>

#include "backends/runtime/runtime_device_guard.h"
#include "backends/simt/emulator/options.h"
#include "backends/simt/emulator/platform.h"
#include "backends/simt/emulator/traffic.h"
#include "runtime/protection.h"
#include "runtime/sim_runtime.h"

namespace infini_train::sim {
namespace {

template <typename Runtime>
class SimDeviceGuard : public backend::RuntimeDeviceGuard<Runtime> {
 public:
  std::optional<DeviceTraffic> Traffic() const override {
    const simt::emulator::Traffic traffic = simt::emulator::GetTraffic();
    return DeviceTraffic{traffic.bytes_read, traffic.bytes_written};
  }
};

std::unique_ptr<DeviceGuardImpl> MakeDeviceGuard() {
  if (!simt::emulator::GetOptions().check_memory)
    return std::make_unique<SimDeviceGuard<SimRuntime>>();
  simt::emulator::SetLaunchHooks({&protection::BeginWork, &protection::EndWork});
  return std::make_unique<SimDeviceGuard<CheckedRuntime>>();
}

const detail::DeviceGuardRegistrar registrar(DeviceType::kPrivateUse1, &MakeDeviceGuard, __FILE__,
                                             __LINE__);

}  // namespace
}  // namespace infini_train::sim
