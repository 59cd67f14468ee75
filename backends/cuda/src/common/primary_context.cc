#include "common/primary_context.h"

#include <infini/rt/nvidia/runtime.h>

namespace infini_train::cuda {

bool HasPrimaryContext(int device) noexcept {
  return ::infini::rt::runtime::Runtime<::infini::rt::Device::Type::kNvidia>::IsInUse(device);
}

}  // namespace infini_train::cuda
