#include "infini_train_sim/backend.h"

#include "infini_train/core/device/private_use1.h"
#include "infini_train/core/dtype.h"

void infini_train::sim::RegisterBackend() {
  core::RegisterPrivateUse1Backend({.name = "sim", .default_autocast_dtype = DataType::kBFloat16});
}
