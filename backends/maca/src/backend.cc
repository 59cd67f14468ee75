#include "infini_train_maca/backend.h"

#include "infini_train/core/device/private_use1.h"
#include "infini_train/core/dtype.h"

void infini_train::maca::RegisterBackend() {
  core::RegisterPrivateUse1Backend({.name = "maca", .default_autocast_dtype = DataType::kBFloat16});
}
