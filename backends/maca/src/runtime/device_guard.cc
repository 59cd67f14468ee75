#include "infini_train/core/device/device_guard.h"

#include <vector>

#include "backends/runtime/runtime_device_guard.h"
#include "runtime/maca_runtime.h"
#include "runtime/policy.h"

namespace infini_train::maca {
namespace {

class MacaDeviceGuard final : public backend::RuntimeDeviceGuard<MacaRuntime> {
 public:
  /// Before anything starts the runtime.
  MacaDeviceGuard() { GetPolicy(); }

  std::vector<RuntimeSetting> Settings() const override { return GetPolicy().settings; }
};

REGISTER_DEVICE_GUARD(kPrivateUse1, MacaDeviceGuard);

}  // namespace
}  // namespace infini_train::maca
