#include <infini/rt.h>

#include <iterator>
#include <thread>

#include <gtest/gtest.h>

namespace infini::rt {
namespace {

constexpr Device::Type kFirst = kEnabledDeviceTypes[0];
constexpr Device::Type kLast = kEnabledDeviceTypes[std::size(kEnabledDeviceTypes) - 1];

Device::Type NotEnabled() {
  for (int i = 0; i < static_cast<int>(Device::Type::kCount); ++i) {
    auto type = static_cast<Device::Type>(i);
    if (!runtime_device_type_enabled(type)) return type;
  }
  return Device::Type::kCount;
}

TEST(Selection, DefaultIsTheAcceleratorElseTheCpu) {
  std::thread([] { EXPECT_EQ(runtime_device_type(), kLast); }).join();
  EXPECT_EQ(default_runtime_device_type(), kLast);
}

TEST(Selection, RefusesWhatTheBuildLacks) {
  Device::Type before = runtime_device_type();
  EXPECT_EQ(set_runtime_device_type(NotEnabled()), runtime::kErrorInvalidDevice);
  EXPECT_EQ(set_runtime_device_type(static_cast<Device::Type>(200)), runtime::kErrorInvalidDevice);
  EXPECT_EQ(set_default_runtime_device_type(NotEnabled()), runtime::kErrorInvalidDevice);
  EXPECT_EQ(runtime_device_type(), before);
}

TEST(Selection, ChoiceBelongsToTheThread) {
  std::thread([] {
    EXPECT_EQ(set_runtime_device_type(kFirst), runtime::kSuccess);
    EXPECT_EQ(runtime_device_type(), kFirst);
    std::thread([] { EXPECT_EQ(runtime_device_type(), kLast); }).join();
  }).join();
}

TEST(Selection, ProcessDefaultReachesThreadsWithoutAChoice) {
  std::thread([] {
    EXPECT_EQ(set_default_runtime_device_type(kFirst), runtime::kSuccess);
    EXPECT_EQ(runtime_device_type(), kFirst);
    std::thread([] { EXPECT_EQ(runtime_device_type(), kFirst); }).join();
    EXPECT_EQ(set_default_runtime_device_type(kLast), runtime::kSuccess);
    EXPECT_EQ(runtime_device_type(), kLast);
  }).join();
}

TEST(Selection, GuardRestoresTheAbsenceOfAChoice) {
  std::thread([] {
    {
      RuntimeDeviceTypeGuard guard(kFirst);
      EXPECT_EQ(guard.status(), runtime::kSuccess);
      EXPECT_EQ(runtime_device_type(), kFirst);
      RuntimeDeviceTypeGuard refused(NotEnabled());
      EXPECT_EQ(refused.status(), runtime::kErrorInvalidDevice);
      EXPECT_EQ(runtime_device_type(), kFirst);
    }
    EXPECT_EQ(set_default_runtime_device_type(kFirst), runtime::kSuccess);
    EXPECT_EQ(runtime_device_type(), kFirst);
    EXPECT_EQ(set_default_runtime_device_type(kLast), runtime::kSuccess);
    EXPECT_EQ(runtime_device_type(), kLast);
  }).join();
}

}  // namespace
}  // namespace infini::rt
