#include "infini_train/core/device/device_guard.h"

#include <infini/rt/nvidia/runtime.h>
#include <nvtx3/nvToolsExt.h>

#include "backends/runtime/runtime_device_guard.h"

namespace infini_train::cuda {
namespace {

using Runtime = ::infini::rt::runtime::Runtime<::infini::rt::Device::Type::kNvidia>;

class DeviceGuard final : public backend::RuntimeDeviceGuard<Runtime> {
 public:
  void PushProfilerRange(const char* name) override { nvtxRangePushA(name); }
  void PopProfilerRange() noexcept override { nvtxRangePop(); }
};

REGISTER_DEVICE_GUARD(kCUDA, DeviceGuard);

}  // namespace
}  // namespace infini_train::cuda
