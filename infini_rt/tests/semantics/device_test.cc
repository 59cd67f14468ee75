#include <cstring>
#include <thread>

#include "semantics/fixture.h"

namespace infini::rt::runtime {
namespace {

class DeviceSemantics : public Semantics {};

TEST_P(DeviceSemantics, NullPointersAreInvalidValues) {
  EXPECT_EQ(GetDevice(nullptr), kErrorInvalidValue);
  EXPECT_EQ(GetDeviceCount(nullptr), kErrorInvalidValue);
}

TEST_P(DeviceSemantics, BadDeviceIsRefusedAndTheOldOneStays) {
  for (int bad : {-1, 99}) {
    EXPECT_EQ(SetDevice(bad), kErrorInvalidDevice);
    int device = -1;
    EXPECT_OK(GetDevice(&device));
    EXPECT_EQ(device, 0);
  }
}

TEST_P(DeviceSemantics, CurrentDeviceIsPerThread) {
  int count = 0;
  ASSERT_OK(GetDeviceCount(&count));
  ASSERT_OK(SetDevice(count - 1));
  Device::Type type = GetParam();
  std::thread([type] {
    ASSERT_EQ(set_runtime_device_type(type), kSuccess);
    int device = -1;
    EXPECT_OK(GetDevice(&device));
    EXPECT_EQ(device, 0);
  }).join();
  int device = -1;
  EXPECT_OK(GetDevice(&device));
  EXPECT_EQ(device, count - 1);
  EXPECT_OK(SetDevice(0));
}

TEST_P(DeviceSemantics, Properties) {
  REQUIRE_FEATURE(kFeatureDeviceProperty);
  DeviceProp prop;
  ASSERT_OK(GetDeviceProperties(&prop, 0));
  EXPECT_GT(std::strlen(prop.name), 0u);
  EXPECT_GT(prop.multi_processor_count, 0);
  EXPECT_GE(prop.warp_size, 1);
  std::size_t total = 0;
  ASSERT_OK(MemGetInfo(nullptr, &total));
  EXPECT_GT(prop.total_global_mem, 0u);
  EXPECT_NEAR(static_cast<double>(prop.total_global_mem), static_cast<double>(total),
              0.05 * static_cast<double>(total));
  EXPECT_EQ(GetDeviceProperties(nullptr, 0), kErrorInvalidValue);
  EXPECT_EQ(GetDeviceProperties(&prop, 99), kErrorInvalidDevice);
}

TEST_P(DeviceSemantics, PriorityRangeGoesDownward) {
  REQUIRE_FEATURE(kFeatureDeviceProperty);
  int least = -100, greatest = 100;
  ASSERT_OK(DeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(least, 0);
  EXPECT_LE(greatest, least);
  int alone = 100;
  EXPECT_OK(DeviceGetStreamPriorityRange(nullptr, &alone));
  EXPECT_EQ(alone, greatest);
  EXPECT_OK(DeviceGetStreamPriorityRange(&alone, nullptr));
  EXPECT_EQ(alone, least);
  EXPECT_OK(DeviceGetStreamPriorityRange(nullptr, nullptr));
}

TEST_P(DeviceSemantics, LastErrorIsKeptUntilTaken) {
  EXPECT_EQ(SetDevice(99), kErrorInvalidDevice);
  EXPECT_EQ(PeekAtLastError(), kErrorInvalidDevice);
  int device = 0;
  EXPECT_OK(GetDevice(&device));  // a later success does not clear it
  EXPECT_EQ(PeekAtLastError(), kErrorInvalidDevice);
  EXPECT_EQ(GetLastError(), kErrorInvalidDevice);
  EXPECT_OK(PeekAtLastError());
  EXPECT_OK(GetLastError());
}

TEST_P(DeviceSemantics, LastErrorIsPerThread) {
  EXPECT_EQ(SetDevice(99), kErrorInvalidDevice);
  Device::Type type = GetParam();
  std::thread([type] {
    ASSERT_EQ(set_runtime_device_type(type), kSuccess);
    EXPECT_OK(PeekAtLastError());
  }).join();
  EXPECT_EQ(GetLastError(), kErrorInvalidDevice);
}

TEST_P(DeviceSemantics, MissingFeaturesSaySo) {
  Device::Type type = GetParam();
  if (!Supports(type, kFeatureDeviceProperty)) {
    DeviceProp prop;
    EXPECT_EQ(GetDeviceProperties(&prop, 0), kErrorNotSupported);
  }
  if (!Supports(type, kFeaturePeer)) {
    EXPECT_EQ(MemcpyPeer(nullptr, 0, nullptr, 0, 0), kErrorNotSupported);
  }
  if (!Supports(type, kFeatureAsyncMemory)) {
    void* ptr = nullptr;
    EXPECT_EQ(MallocAsync(&ptr, 64, nullptr), kErrorNotSupported);
    EXPECT_EQ(FreeAsync(ptr, nullptr), kErrorNotSupported);
    EXPECT_EQ(GetLastError(), kErrorNotSupported);
  }
  if (!Supports(type, kFeatureMemoryPoolTrim)) {
    EXPECT_EQ(MemPoolTrimTo(nullptr, 0), kErrorNotSupported);
  }
  if (!Supports(type, kFeatureHostFunction)) {
    EXPECT_EQ(LaunchHostFunc(nullptr, nullptr, nullptr), kErrorNotSupported);
  }
  if (!Supports(type, kFeatureGraph)) {
    EXPECT_EQ(StreamBeginCapture(nullptr, kStreamCaptureModeGlobal), kErrorNotSupported);
  }
  EXPECT_OK(DeviceSynchronize());
}

INSTANTIATE_SEMANTICS(DeviceSemantics);

}  // namespace
}  // namespace infini::rt::runtime
