#include "infini_train_outside/backend.h"

#include "infini_train/core/device/private_use1.h"

void infini_train::outside::RegisterBackend() {
  core::RegisterPrivateUse1Backend({"outside", DataType::kBFloat16});
}
