#include "infini_train/core/device/device_guard.h"
#include "tests/core/mock_provider.h"

namespace infini_train {

/// A runtime that forgot how to free memory.
class IncompleteRuntime : public test::MockDeviceGuard {
 public:
  void Free(void* pointer) noexcept override = 0;
};
REGISTER_DEVICE_GUARD(kPrivateUse1, IncompleteRuntime);

}  // namespace infini_train
