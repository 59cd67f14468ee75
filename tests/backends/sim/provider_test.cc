#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "backends/simt/emulator/platform.h"
#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/device/private_use1.h"
#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train_sim/backend.h"

namespace infini_train {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const Device kSim(DeviceType::kPrivateUse1, 0);

DeviceGuardImpl& Guard() {
  return GetDeviceGuardImpl(DeviceType::kPrivateUse1);
}

/// Runs `body` in a process of its own, which has no threads yet, with one environment variable.
template <typename Body>
void With(const char* name, const char* value, Body&& body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv(name, value, /*overwrite=*/1);
        body();
        std::_Exit(::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);
      },
      ::testing::ExitedWithCode(EXIT_SUCCESS), "");
}

void SleepThenSet(std::int32_t* out) {
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  simt::Store(out, 7);
}

void StoreThroughNull(float* out) {
  simt::Store(out, 1.0f);
}

TEST(SimProvider, IsRegisteredByLinkingIt) {
  EXPECT_EQ(core::GetPrivateUse1Backend().name, "sim");
  EXPECT_EQ(core::GetPrivateUse1Backend().default_autocast_dtype, DataType::kBFloat16);
  EXPECT_EQ(Device::ParseType("sim"), DeviceType::kPrivateUse1);
  EXPECT_EQ(kSim.ToString(), "sim:0");
  sim::RegisterBackend();
}

TEST(SimProvider, HasAKernelForEveryOp) {
  for (int i = 0; i < kNumOps; ++i) {
    const auto op = static_cast<OpId>(i);
    EXPECT_TRUE(HasKernel(DeviceType::kPrivateUse1, op)) << GetOpInfo(op).name;
  }
}

TEST(SimProvider, HasTheEmulatorsProperties) {
  const DeviceProperties properties = Guard().Properties(0);
  EXPECT_EQ(properties.name, "InfiniTrain SIMT emulator");
  EXPECT_EQ(properties.warp_size, simt::WarpSize());
  EXPECT_GT(properties.total_memory, 0u);
  EXPECT_GE(properties.compute_units, 1);
}

TEST(SimProviderDeathTest, EnvironmentChoosesWarpSizeAndDevices) {
  for (const int size : {32, 64}) {
    With("INFINITRAIN_SIM_WARP_SIZE", std::to_string(size).c_str(),
         [&] { EXPECT_EQ(Guard().Properties(0).warp_size, size); });
  }
  With("INFINI_RT_CPU_DEVICES", "3", [] {
    EXPECT_EQ(Guard().DeviceCount(), 3);
    EXPECT_EQ(Device::Parse("sim:2").index(), 2);
    EXPECT_THROW(Device::Parse("sim:3"), Error);
  });
}

TEST(SimProvider, KernelsRunBehindTheCaller) {
  const Tensor tensor = Tensor::Empty({1}, DataType::kInt32, kSim);
  const StreamHandle stream = Guard().CreateStream(0);
  const EventHandle done = Guard().CreateEvent();
  simt::Launch(simt::Context(kSim, static_cast<simt::NativeStream>(stream)), {.block = 1},
               &SleepThenSet, tensor.data<std::int32_t>());
  Guard().RecordEvent(done, stream);
  EXPECT_FALSE(Guard().QueryEvent(done));
  Guard().SynchronizeStream(stream);
  EXPECT_EQ(tensor.ToVector<std::int32_t>(), std::vector<std::int32_t>{7});
  Guard().DestroyEvent(done);
  Guard().DestroyStream(stream);
}

TEST(SimProvider, CountsMemory) {
  const MemoryStats before = allocator::Stats(kSim);
  {
    const Tensor tensor = Tensor::Empty({1 << 20}, DataType::kUInt8, kSim);
    EXPECT_GE(allocator::Stats(kSim).allocated, before.allocated + (1 << 20));
  }
  EXPECT_EQ(allocator::Stats(kSim).allocated, before.allocated);
  EXPECT_GE(allocator::Stats(kSim).peak_allocated, before.allocated + (1 << 20));
}

TEST(SimProviderDeathTest, AFaultSaysWhichKernelDidWhat) {
  With("INFINITRAIN_SIM_THREADS", "2", [] {
    simt::Launch(simt::Context(kSim, nullptr), {.block = 1}, &StoreThroughNull,
                 static_cast<float*>(nullptr));
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT([] { Guard().SynchronizeStream(nullptr); },
                  ThrowsMessage<Error>(::testing::AllOf(HasSubstr("kErrorLaunchFailure"),
                                                        HasSubstr("StoreThroughNull"))));
    }
  });
}

}  // namespace
}  // namespace infini_train
