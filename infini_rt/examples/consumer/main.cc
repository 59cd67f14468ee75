#include <infini/rt.h>

#include <cstdio>

int main() {
  using namespace infini::rt;
  std::printf("default backend: %s\n",
              std::string(Device::StringFromType(runtime_device_type())).c_str());
  float data[6] = {};
  TensorView view(data, {2, 3});
  std::printf("%s\n", view.ToString().c_str());
  int count = 0;
  // An accelerator build also runs where there is no such device: the call then says so.
  runtime::Error error = runtime::GetDeviceCount(&count);
  std::printf("devices: %d (%s)\n", count, runtime::GetErrorName(error));
  return view.IsContiguous() ? 0 : 1;
}
