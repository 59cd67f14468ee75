#include "selection.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <infini/rt/generated.h>
#include <infini/rt/runtime.h>

namespace infini::rt {
namespace detail {

// The generated list has the CPU first and the accelerator, if any, last.
constinit thread_local int thread_choice = kNoChoice;
constinit std::atomic<int> default_choice{
    static_cast<int>(kEnabledDeviceTypes[std::size(kEnabledDeviceTypes) - 1])};

}  // namespace detail

Device::Type runtime_device_type() {
  return static_cast<Device::Type>(detail::CurrentChoice());
}

bool runtime_device_type_enabled(Device::Type type) {
  return std::find(std::begin(kEnabledDeviceTypes), std::end(kEnabledDeviceTypes), type) !=
         std::end(kEnabledDeviceTypes);
}

runtime::Error set_runtime_device_type(Device::Type type) {
  if (!runtime_device_type_enabled(type)) return runtime::kErrorInvalidDevice;
  detail::thread_choice = static_cast<int>(type);
  return runtime::kSuccess;
}

Device::Type default_runtime_device_type() {
  return static_cast<Device::Type>(detail::default_choice.load(std::memory_order_relaxed));
}

runtime::Error set_default_runtime_device_type(Device::Type type) {
  if (!runtime_device_type_enabled(type)) return runtime::kErrorInvalidDevice;
  detail::default_choice.store(static_cast<int>(type), std::memory_order_relaxed);
  return runtime::kSuccess;
}

RuntimeDeviceTypeGuard::RuntimeDeviceTypeGuard(Device::Type type)
    : previous_(detail::thread_choice), status_(set_runtime_device_type(type)) {}

RuntimeDeviceTypeGuard::~RuntimeDeviceTypeGuard() {
  detail::thread_choice = previous_;
}

}  // namespace infini::rt
