#include <mcr/mc_runtime.h>

#include "cuda_style/definitions.inc"

mcError_t mcInit(unsigned int flags) {
  return flags == 0 ? mcSuccess : mcErrorInvalidValue;
}

mcError_t mcGetDeviceProperties(mcDeviceProp_t* prop, int device) {
  runtime::DeviceProp own;
  runtime::Error error = Cpu::GetDeviceProperties(prop != nullptr ? &own : nullptr, device);
  if (error != runtime::kSuccess) return Give(error);
  prop->totalGlobalMem = own.total_global_mem;
  prop->warpSize = own.warp_size;
  return mcSuccess;
}

mcError_t mcDeviceGetAttribute(int* value, mcDeviceAttribute_t attribute, int device) {
  runtime::DeviceProp own;
  runtime::Error error = Cpu::GetDeviceProperties(&own, device);
  if (error != runtime::kSuccess) return Give(error);
  if (attribute != mcDeviceAttributeMultiProcessorCount) return mcErrorInvalidValue;
  *value = own.multi_processor_count;
  return mcSuccess;
}

mcError_t mcDeviceGetName(char* name, int length, int device) {
  runtime::DeviceProp own;
  runtime::Error error = Cpu::GetDeviceProperties(&own, device);
  if (error != runtime::kSuccess) return Give(error);
  std::strncpy(name, own.name, static_cast<std::size_t>(length) - 1);
  name[length - 1] = '\0';
  return mcSuccess;
}
