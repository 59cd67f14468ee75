#include "infini_train/autograd/grad_mode.h"

#include <fmt/format.h>

#include "infini_train/core/device/private_use1.h"
#include "infini_train/core/error.h"

namespace infini_train {
namespace {

thread_local bool grad_enabled = true;
thread_local std::optional<DataType> autocast_dtype;

}  // namespace

bool autograd::GradEnabled() {
  return grad_enabled;
}
void autograd::SetGradEnabled(bool enabled) {
  grad_enabled = enabled;
}

std::optional<DataType> autocast::ComputeDataType() {
  return autocast_dtype;
}
void autocast::SetComputeDataType(std::optional<DataType> dtype) {
  autocast_dtype = dtype;
}

DataType autocast::DefaultDataType(Device device) {
  if (device.type() != DeviceType::kPrivateUse1) return DataType::kBFloat16;
  return *core::GetPrivateUse1Backend().default_autocast_dtype;
}

Autocast::Autocast(std::optional<DataType> dtype) : previous_(autocast_dtype) {
  if (dtype && *dtype != DataType::kBFloat16) {
    throw Error(fmt::format("autocast: expected bfloat16, got {}", ToString(*dtype)));
  }
  autocast_dtype = dtype;
}

}  // namespace infini_train
