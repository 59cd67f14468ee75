#include "infini_train_my_backend/backend.h"

#include "infini_train/core/device/private_use1.h"
#include "infini_train/core/dtype.h"

namespace infini_train::my_backend {

void RegisterBackend() {
  core::PrivateUse1Backend backend;
  backend.name = "my_backend";
  backend.default_autocast_dtype = DataType::kBFloat16;
  core::RegisterPrivateUse1Backend(backend);
}

}  // namespace infini_train::my_backend
