#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "backends/simt/emulator/platform.h"
#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/tensor.h"

namespace infini_train {
namespace {

using ::testing::KilledBySignal;

const Device kSim(DeviceType::kPrivateUse1, 0);

/// Before anything asks for it.
[[maybe_unused]] const bool chosen = [] {
  ::setenv("INFINITRAIN_SIM_CHECK", "memory", /*overwrite=*/1);
  ::setenv("INFINI_RT_CPU_DEVICES", "2", /*overwrite=*/1);
  return true;
}();

class SimMemoryCheckDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void AddOne(std::int32_t* values, std::int64_t count) {
  const std::int64_t i = simt::GlobalThreadIndex();
  if (i < count) simt::Store(values + i, simt::Load(values + i) + 1);
}

Tensor Numbers(Device device = kSim) {
  std::vector<std::int32_t> values(1000);
  std::iota(values.begin(), values.end(), 0);
  const Tensor tensor = Tensor::Empty({1000}, DataType::kInt32, device);
  tensor.CopyFromHost(values.data(), values.size() * sizeof(values[0]));
  return tensor;
}

TEST_F(SimMemoryCheckDeathTest, HostCodeThatTouchesDeviceMemoryIsNamed) {
  const char* const message =
      "host code touched device memory; copy it to the host first: address 0x[0-9a-f]+, device "
      "sim:0, byte 4 of an allocation of [0-9]+\n$";
  EXPECT_EXIT(
      {
        const Tensor tensor = Numbers();
        auto* values = const_cast<volatile std::int32_t*>(tensor.data<std::int32_t>());
        std::exit(values[1]);
      },
      KilledBySignal(SIGSEGV), message);
  EXPECT_EXIT(
      {
        const Tensor tensor = Numbers();
        tensor.data<std::int32_t>()[1] = 2;
        std::exit(0);
      },
      KilledBySignal(SIGSEGV), message);
}

TEST_F(SimMemoryCheckDeathTest, MappedMemoryIsClosedToo) {
  EXPECT_EXIT(
      {
        const Tensor tensor = Tensor::Empty({20, 1 << 20}, DataType::kUInt8, kSim);
        tensor.data<std::uint8_t>()[9 << 20] = 2;
        std::exit(0);
      },
      KilledBySignal(SIGSEGV),
      "host code touched device memory; copy it to the host first: address 0x[0-9a-f]+, device "
      "sim:0, byte 1048576 of an allocation of 2097152\n$");
}

TEST_F(SimMemoryCheckDeathTest, EachDeviceIsNamed) {
  EXPECT_EXIT(
      {
        const Tensor tensor = Numbers(Device(DeviceType::kPrivateUse1, 1));
        *tensor.data<std::int32_t>() = 2;
        std::exit(0);
      },
      KilledBySignal(SIGSEGV), "device sim:1, byte 0 of");
}

TEST_F(SimMemoryCheckDeathTest, MemoryIsClosedAfterALaunch) {
  EXPECT_EXIT(
      {
        const Tensor tensor = Numbers();
        simt::Launch(simt::Context(kSim, nullptr), {.grid_x = 4}, &AddOne,
                     tensor.data<std::int32_t>(), std::int64_t{1000});
        *tensor.data<std::int32_t>() = 2;
        std::exit(0);
      },
      KilledBySignal(SIGSEGV), "host code touched device memory");
}

#ifndef __SANITIZE_ADDRESS__
TEST_F(SimMemoryCheckDeathTest, OtherFaultsAreLeftAlone) {
  EXPECT_EXIT(
      {
        const Tensor tensor = Numbers();
        volatile int* nowhere = nullptr;
        std::exit(*nowhere);
      },
      KilledBySignal(SIGSEGV), "^$");
}
#endif

TEST(SimMemoryCheck, DeviceWorkIsNotDisturbed) {
  DeviceGuardImpl& guard = GetDeviceGuardImpl(DeviceType::kPrivateUse1);
  const Device other(DeviceType::kPrivateUse1, 1);
  const Tensor tensor = Numbers();
  const Tensor moved = Tensor::Empty({1000}, DataType::kInt32, other);
  const StreamHandle stream = guard.CreateStream(0);
  simt::Launch(simt::Context(kSim, static_cast<simt::NativeStream>(stream)), {.grid_x = 4}, &AddOne,
               tensor.data<std::int32_t>(), std::int64_t{1000});
  guard.CopyPeerAsync(moved.data<std::int32_t>(), 1, tensor.data<std::int32_t>(), 0, moved.nbytes(),
                      stream);
  guard.FillBytesAsync(tensor.data<std::int32_t>(), 0, tensor.nbytes(), stream);
  guard.DestroyStream(stream);
  std::vector<std::int32_t> expected(1000);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_EQ(moved.ToVector<std::int32_t>(), expected);
  EXPECT_EQ(tensor.ToVector<std::int32_t>(), std::vector<std::int32_t>(1000));
}

TEST(SimMemoryCheck, MappedMemoryComesAndGoes) {
  for (int round = 0; round < 20; ++round) {
    const Tensor kept = Tensor::Empty({9 << 20}, DataType::kUInt8, kSim);
    {
      const std::vector<std::uint8_t> bytes(40 << 20, static_cast<std::uint8_t>(round));
      const Tensor tensor = Tensor::Empty({40 << 20}, DataType::kUInt8, kSim);
      tensor.CopyFromHost(bytes.data(), bytes.size());
      EXPECT_EQ(tensor.ToVector<std::uint8_t>(), bytes);
    }
    allocator::EmptyCache(kSim);
    kept.CopyFromHost(std::vector<std::uint8_t>(9 << 20, 3).data(), 9 << 20);
    EXPECT_EQ(kept.ToVector<std::uint8_t>().back(), 3);
  }
  allocator::EmptyCache(kSim);
}

TEST(SimMemoryCheck, FreedMemoryIsOpenAgain) {
  DeviceGuardImpl& guard = GetDeviceGuardImpl(DeviceType::kPrivateUse1);
  for (int round = 0; round < 100; ++round) {
    void* pointer = guard.Allocate(3 * 4096 + 17);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % 4096, 0u);
    guard.FillBytesAsync(pointer, 1, 3 * 4096 + 17, nullptr);
    guard.Free(pointer);
    // What the host's heap makes of those pages.
    const std::vector<char> bytes(3 * 4096, 'x');
    EXPECT_EQ(bytes.back(), 'x');
  }
  EXPECT_EQ(guard.Allocate(0), nullptr);
  EXPECT_EQ(guard.Allocate(SIZE_MAX), nullptr);
}

}  // namespace
}  // namespace infini_train
