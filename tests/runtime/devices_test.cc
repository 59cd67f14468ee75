// Counting, choosing and describing devices.

#include <gtest/gtest.h>

#include <exception>
#include <stdexcept>
#include <thread>

#include "tests/runtime/runtime_test.h"

namespace infini_train::test {
namespace {

class RuntimeDevicesTest : public RuntimeTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(RuntimeDevicesTest);

TEST_P(RuntimeDevicesTest, ThereIsADevice) {
  EXPECT_TRUE(HasDeviceGuardImpl(device().type()));
  const int count = impl().DeviceCount();
  EXPECT_GE(count, 1);
  EXPECT_LE(count, kMaxDevicesPerType);
  EXPECT_EQ(impl().DeviceCount(), count);
  EXPECT_EQ(impl().IsHostMemory(), device().is_cpu());
}

TEST_P(RuntimeDevicesTest, EachCanBeTheCurrentOne) {
  const int before = impl().CurrentDevice();
  for (int i = 0; i < impl().DeviceCount(); ++i) {
    impl().SetDevice(i);
    EXPECT_EQ(impl().CurrentDevice(), i);
  }
  impl().SetDevice(before);
}

TEST_P(RuntimeDevicesTest, ThreadsChooseForThemselves) {
  const int last = impl().DeviceCount() - 1;
  const DeviceGuard guard({device().type(), last});
  std::thread([&] {
    EXPECT_EQ(impl().CurrentDevice(), 0) << "a thread starts with device 0";
    impl().SetDevice(0);
  }).join();
  EXPECT_EQ(impl().CurrentDevice(), last);
}

TEST_P(RuntimeDevicesTest, OthersAreRefusedAndChangeNothing) {
  const int before = impl().CurrentDevice();
  EXPECT_THROW(impl().SetDevice(-1), std::exception);
  EXPECT_THROW(impl().SetDevice(impl().DeviceCount()), std::exception);
  EXPECT_EQ(impl().CurrentDevice(), before);
  const Memory memory(Pattern(100, 1));
  EXPECT_EQ(memory.Read(), Pattern(100, 1)) << "the refused call broke the device";
}

TEST_P(RuntimeDevicesTest, PropertiesArePlausibleAndChooseNothing) {
  const int before = impl().CurrentDevice();
  for (int i = 0; i < impl().DeviceCount(); ++i) {
    const DeviceProperties properties = impl().Properties(i);
    EXPECT_FALSE(properties.name.empty());
    EXPECT_GT(properties.total_memory, std::size_t{1} << 20);
    EXPECT_GT(properties.free_memory, 0u);
    EXPECT_LE(properties.free_memory, properties.total_memory);
    EXPECT_GE(properties.compute_units, 1);
    EXPECT_GE(properties.warp_size, 1);
  }
  EXPECT_EQ(impl().CurrentDevice(), before);
}

TEST_P(RuntimeDevicesTest, AGuardRestoresTheDeviceAlsoAfterAnException) {
  const int before = impl().CurrentDevice();
  for (int i = 0; i < impl().DeviceCount(); ++i) {
    try {
      const DeviceGuard guard({device().type(), i});
      EXPECT_EQ(impl().CurrentDevice(), i);
      throw std::runtime_error("thrown inside the scope");
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(impl().CurrentDevice(), before);
  }
}

TEST_P(RuntimeDevicesTest, TheirNamesAreParsed) {
  for (int i = 0; i < impl().DeviceCount(); ++i) {
    const Device one(device().type(), i);
    EXPECT_EQ(Device::Parse(one.ToString()), one);
  }
  EXPECT_THROW(
      Device::Parse(ToString(device().type()) + ":" + std::to_string(impl().DeviceCount())),
      std::exception);
}

}  // namespace
}  // namespace infini_train::test
