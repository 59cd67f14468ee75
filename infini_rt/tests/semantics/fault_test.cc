#include "semantics/fault.h"

#include <cstdlib>

#include "semantics/fixture.h"

#if INFINI_RT_WITH_CPU
#include <infini/rt/cpu/runtime.h>
#endif

namespace infini::rt::runtime {
namespace {

/// Sticky errors. They end the usefulness of a process, so each test runs in a process of its own.
class FaultSemantics : public Semantics {
 protected:
  void SetUp() override {
    if (!CanFault(GetParam())) GTEST_SKIP() << "no way to make this device fault";
    testing::FLAGS_gtest_death_test_style = "threadsafe";
  }
  void TearDown() override {}

  static bool CanFault(Device::Type type) {
#if INFINI_RT_TEST_CUDA_FAULT
    if (type == Device::Type::kNvidia) return true;
#endif
    return type == Device::Type::kCpu;
  }

  static void LaunchFault(Device::Type type, Stream stream) {
#if INFINI_RT_TEST_CUDA_FAULT
    if (type == Device::Type::kNvidia) LaunchCudaFault(stream);
#endif
#if INFINI_RT_WITH_CPU
    if (type == Device::Type::kCpu) {
      auto fault = [](const void*) { return kErrorLaunchFailure; };
      Runtime<Device::Type::kCpu>::LaunchKernel(fault, nullptr, 0, stream);
    }
#endif
  }

  // In the child process: 0 if everything after the fault repeats its code.
  static int Sticks(Device::Type type) {
    Stream stream = nullptr;
    void* ptr = nullptr;
    if (set_runtime_device_type(type) != kSuccess) return 2;
    if (StreamCreate(&stream) != kSuccess || Malloc(&ptr, 64) != kSuccess) return 3;
    LaunchFault(type, stream);
    Error error = StreamSynchronize(stream);
    if (error != kErrorLaunchFailure) return 4;
    if (GetLastError() != error) return 5;
    if (Malloc(&ptr, 64) != error) return 6;
    GetLastError();
    if (DeviceSynchronize() != error) return 7;
    if (MemsetAsync(ptr, 0, 64, stream) != error) return 8;
    return 0;
  }
};

TEST_P(FaultSemantics, DeviceFaultsAreSticky) {
  EXPECT_EXIT(std::exit(Sticks(GetParam())), testing::ExitedWithCode(0), "");
}

INSTANTIATE_SEMANTICS(FaultSemantics);

}  // namespace
}  // namespace infini::rt::runtime
