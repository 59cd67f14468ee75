/// Which backends this build has, and how a thread chooses one.

#include <thread>

#include "check.h"

int main() {
  using namespace infini::rt;

  for (Device::Type type : kEnabledDeviceTypes) {
    // The choice belongs to the thread and ends with the guard.
    RuntimeDeviceTypeGuard guard(type);
    CHECK(guard.status());
    int count = 0;
    if (runtime::GetDeviceCount(&count) != runtime::kSuccess) count = 0;
    std::printf("%s: %d device(s)\n", std::string(Device::StringFromType(type)).c_str(), count);
  }

  // Threads that never chose use the process default: the accelerator if there is one.
  CHECK(set_default_runtime_device_type(kEnabledDeviceTypes[0]));
  bool follows = false;
  std::thread([&] { follows = runtime_device_type() == kEnabledDeviceTypes[0]; }).join();

  // What a backend may lack can be asked for before it is used.
  if (runtime::Supports(runtime_device_type(), runtime::kFeatureGraph)) {
    std::printf("this backend has graphs\n");
  }
  return follows ? 0 : 1;
}
