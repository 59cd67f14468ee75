#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "native/cpu/api/call.h"

namespace infini::rt::runtime {
namespace {

using cpu::Call;
using cpu::Context;
using Cpu = Runtime<Device::Type::kCpu>;

// The processor's name as the kernel gives it, or "CPU".
std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

}  // namespace

Error Cpu::SetDevice(int device) {
  return Call([&] {
    if (!Context::Get().ValidDevice(device)) return kErrorInvalidDevice;
    Context::set_current_device(device);
    return kSuccess;
  });
}

Error Cpu::GetDevice(int* device) {
  return Call([&] {
    if (device == nullptr) return kErrorInvalidValue;
    *device = Context::current_device();
    return kSuccess;
  });
}

Error Cpu::GetDeviceCount(int* count) {
  return Call([&] {
    if (count == nullptr) return kErrorInvalidValue;
    *count = Context::Get().device_count();
    return kSuccess;
  });
}

Error Cpu::DeviceSynchronize() {
  return Call([&] {
    cpu::DeviceState& device = Context::Get().CurrentDevice();
    Error error = cpu::CheckSynchronize(device);
    if (error != kSuccess) return error;
    device.Synchronize(/*blocking_only=*/false);
    device.pool().TrimToThreshold();
    return Context::Get().fault();
  });
}

Error Cpu::GetDeviceProperties(DeviceProp* prop, int device) {
  return Call([&] {
    if (prop == nullptr) return kErrorInvalidValue;
    if (!Context::Get().ValidDevice(device)) return kErrorInvalidDevice;
    static const std::string name = ProcessorName();
    *prop = {};
    std::memcpy(prop->name, name.data(), std::min(name.size(), sizeof(prop->name) - 1));
    prop->total_global_mem = Context::Get().device(device).total_memory();
    prop->multi_processor_count = static_cast<int>(std::thread::hardware_concurrency());
    prop->warp_size = 1;
    return kSuccess;
  });
}

Error Cpu::DeviceGetStreamPriorityRange(int* least_priority, int* greatest_priority) {
  return Call([&] {
    if (least_priority != nullptr) *least_priority = cpu::kLeastPriority;
    if (greatest_priority != nullptr) *greatest_priority = cpu::kGreatestPriority;
    return kSuccess;
  });
}

Error Cpu::GetLastError() {
  Error last = detail::TakeError(Device::Type::kCpu);
  Error fault = Context::Get().fault();
  return fault != kSuccess ? fault : last;
}

Error Cpu::PeekAtLastError() {
  Error fault = Context::Get().fault();
  return fault != kSuccess ? fault : detail::PeekError(Device::Type::kCpu);
}

}  // namespace infini::rt::runtime
