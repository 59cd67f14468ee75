#include "infini_train/core/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/device/private_use1.h"
#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "tests/core/child_process.h"
#include "tests/core/mock_provider.h"

namespace infini_train {
namespace {

using core::RegisterPrivateUse1Backend;
using test::InChildProcess;
using test::MockRuntime;
using test::RegisterMockProvider;
using test::RegisterMockRuntime;

constexpr auto kPrivateUse1 = DeviceType::kPrivateUse1;

/// Outlives every other object of this program.
Tensor tensor_in_static_object;

TEST(Device, ParsesAndPrintsBuiltInNames) {
  EXPECT_EQ(Device::Parse("cpu"), Device());
  EXPECT_EQ(Device::Parse("cpu:0"), Device());
  EXPECT_EQ(Device::Parse("cpu").ToString(), "cpu");
  EXPECT_ERROR(Device::Parse("cpu:1"), "there is 1 cpu device");
  EXPECT_EQ(Device(DeviceType::kCUDA, 1).ToString(), "cuda:1");
  EXPECT_EQ(Device::ParseType("cuda"), DeviceType::kCUDA);
  if (!HasDeviceGuardImpl(DeviceType::kCUDA)) {
    EXPECT_EQ(Device::Parse("cuda:0"), Device(DeviceType::kCUDA, 0));
  }
  EXPECT_EQ(ToString(kPrivateUse1), "privateuse1");
}

TEST(Device, RefusesMalformedText) {
  for (const char* text :
       {"", ":", ":0", "cpu:", "cpu: 0", " cpu", "cpu ", "CPU", "cpu:-1", "cpu:+1", "cpu:0x0",
        "cpu:00", "cpu:0:0", "cpu:99999999999999999999", "cpux", "cud", "privateuse1", "sim:0"}) {
    EXPECT_ERROR(Device::Parse(text),
                 "'" + std::string(text).substr(0, std::string(text).find(':')));
  }
}

TEST(Device, DistinguishesKindAndIndexInHashAndComparison) {
  EXPECT_NE(Device(DeviceType::kCUDA, 0), Device(DeviceType::kCUDA, 1));
  EXPECT_NE(Device(DeviceType::kCUDA, 0), Device(kPrivateUse1, 0));
  const std::hash<Device> hash;
  EXPECT_NE(hash({DeviceType::kCUDA, 0}), hash({DeviceType::kCUDA, 1}));
  EXPECT_NE(hash({DeviceType::kCUDA, 0}), hash({kPrivateUse1, 0}));
}

class DeviceName : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceName, IsMatchedExactlyNeverByPrefix) {
  InChildProcess([] {
    const std::string name = GetParam();
    RegisterMockProvider(name);
    EXPECT_EQ(Device::Parse(name), Device(kPrivateUse1, 0));
    EXPECT_EQ(Device::Parse(name + ":0"), Device(kPrivateUse1, 0));
    EXPECT_EQ(Device::Parse(name + ":1"), Device(kPrivateUse1, 1));
    EXPECT_EQ(Device::Parse("privateuse1:1").ToString(), name + ":1");
    EXPECT_ERROR(Device::Parse(name + ":2"), "there are 2 " + name + " devices");
    for (const std::string suffix : {":-1", ":", ":01x", ":1 ", "x", "x:0"}) {
      EXPECT_ERROR(Device::Parse(name + suffix), "'" + name);
    }
    std::string upper = name;
    upper[0] = static_cast<char>(upper[0] - 'a' + 'A');
    EXPECT_ERROR(Device::Parse(upper + ":0"), upper);
    EXPECT_ERROR(Device::Parse(name.substr(0, name.size() - 1) + "?"),
                 "expected cpu, cuda or " + name);
    EXPECT_EQ(Device::Parse("cpu"), Device());
    EXPECT_EQ(Device::Parse("cpu:0"), Device());
    EXPECT_EQ(Device::ParseType("cuda"), DeviceType::kCUDA);
    EXPECT_ERROR(Device::Parse(""), "''");

    const Tensor tensor = Tensor::Empty({3}, DataType::kFloat32, Device(kPrivateUse1, 1));
    EXPECT_EQ(tensor.device().ToString(), name + ":1");
    EXPECT_EQ(MockRuntime::allocations[0], 0);
    EXPECT_EQ(MockRuntime::allocations[1], 1);
    EXPECT_EQ(MockRuntime::current_device, 0) << "the current device was not restored";
  });
}

INSTANTIATE_TEST_SUITE_P(Names, DeviceName, ::testing::Values("cpux", "cuda_like", "metax2"));

TEST(PrivateUse1, TakesWellFormedNamesOnly) {
  InChildProcess([] {
    const auto dtype = DataType::kBFloat16;
    for (const std::string name : {"cpu", "cuda", "privateuse1", "auto", "host", "meta"}) {
      EXPECT_ERROR(RegisterPrivateUse1Backend({name, dtype}), "'" + name + "' is reserved");
    }
    for (const std::string name : {"", "a:b", "a b", "Sim", "a-b", "\xc3\xa9"}) {
      EXPECT_ERROR(RegisterPrivateUse1Backend({name, dtype}), "'" + name + "' is malformed");
    }
    EXPECT_ERROR(RegisterPrivateUse1Backend({"a\n", dtype}), "'a?' is malformed");
    EXPECT_ERROR(RegisterPrivateUse1Backend({std::string(300, 'a'), dtype}), "got 300");
    EXPECT_ERROR(RegisterPrivateUse1Backend({std::string(65, 'a'), dtype}), "got 65");
    EXPECT_ERROR(RegisterPrivateUse1Backend({"sim", std::nullopt}), "no default_autocast_dtype");
    EXPECT_ERROR(RegisterPrivateUse1Backend({"sim", DataType::kFloat32}), "float32");
    EXPECT_FALSE(core::HasPrivateUse1Backend());
    EXPECT_ERROR(core::GetPrivateUse1Backend(), "no PrivateUse1 provider is registered");
    RegisterPrivateUse1Backend({std::string(64, 'a'), DataType::kFloat16});
    EXPECT_TRUE(core::HasPrivateUse1Backend());
  });
}

TEST(PrivateUse1, HasOneProviderPerProcess) {
  InChildProcess([] {
    RegisterMockProvider("sim");
    EXPECT_NO_THROW(RegisterPrivateUse1Backend({"sim", DataType::kBFloat16}));
    EXPECT_ERROR(RegisterPrivateUse1Backend({"sim", DataType::kFloat16}), "float16");
    EXPECT_ERROR(RegisterPrivateUse1Backend({"other", DataType::kBFloat16}),
                 "'sim' (default autocast dtype bfloat16) is registered already");
    EXPECT_EQ(core::GetPrivateUse1Backend().name, "sim");
    EXPECT_EQ(Device::Parse("sim:1").ToString(), "sim:1");
    EXPECT_EQ(Tensor::Empty({2}, DataType::kInt32, Device(kPrivateUse1)).numel(), 2);
    EXPECT_NO_THROW(RegisterPrivateUse1Backend({"sim", DataType::kBFloat16}));
  });
}

TEST(PrivateUse1, RegistersBeforeItsDevicesAreUsed) {
  InChildProcess([] {
    RegisterMockRuntime();
    EXPECT_ERROR(Tensor::Empty({1}, DataType::kFloat32, Device(kPrivateUse1)), "RegisterBackend()");
    EXPECT_EQ(MockRuntime::constructed, 0);
    EXPECT_ERROR(RegisterPrivateUse1Backend({"sim", DataType::kBFloat16}),
                 "register the provider first");
  });
}

TEST(DeviceGuardRegistry, DoesNotDependOnTheOrderOfRegistration) {
  for (const bool runtime_first : {false, true}) {
    InChildProcess([&] {
      if (runtime_first) RegisterMockRuntime();
      RegisterPrivateUse1Backend({"mock", DataType::kBFloat16});
      if (!runtime_first) RegisterMockRuntime();
      EXPECT_EQ(Device::ParseType("mock"), kPrivateUse1);
      EXPECT_EQ(Device(kPrivateUse1, 1).ToString(), "mock:1");
      EXPECT_TRUE(HasDeviceGuardImpl(kPrivateUse1));
      EXPECT_EQ(MockRuntime::constructed, 0) << "registration must not start the device";
      EXPECT_EQ(Device::Parse("mock:1"), Device(kPrivateUse1, 1));
      EXPECT_EQ(MockRuntime::constructed, 1);
    });
  }
}

TEST(DeviceGuardRegistry, StartsTheRuntimeOnceUnderManyThreads) {
  InChildProcess([] {
    core::RegisterPrivateUse1Backend({"mock", DataType::kBFloat16});
    detail::DeviceGuardRegistrar(
        kPrivateUse1,
        [] {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          return test::MakeMockDeviceGuard();
        },
        "mock.cc", 1);
    std::vector<DeviceGuardImpl*> seen(64);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      threads.emplace_back([&, i] {
        seen[i] = &GetDeviceGuardImpl(kPrivateUse1);
        Tensor::Empty({1}, DataType::kFloat32, Device(kPrivateUse1, static_cast<int>(i % 2)));
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    EXPECT_EQ(MockRuntime::constructed, 1);
    EXPECT_THAT(seen, ::testing::Each(seen[0]));
  });
}

TEST(DeviceGuardRegistry, NamesBothPlacesOfADuplicate) {
  InChildProcess([] {
    detail::DeviceGuardRegistrar(kPrivateUse1, &test::MakeMockDeviceGuard, "a.cc", 12);
    EXPECT_THAT(
        [] { detail::DeviceGuardRegistrar(kPrivateUse1, &test::MakeMockDeviceGuard, "b.cc", 34); },
        ::testing::ThrowsMessage<Error>(
            ::testing::AllOf(::testing::HasSubstr("a.cc:12"), ::testing::HasSubstr("b.cc:34"))));
  });
}

TEST(DeviceGuardRegistry, SaysWhatToLink) {
  InChildProcess([] {
    RegisterPrivateUse1Backend({"sim", DataType::kBFloat16});
    EXPECT_FALSE(HasDeviceGuardImpl(kPrivateUse1));
    EXPECT_ERROR(GetDeviceGuardImpl(kPrivateUse1), "InfiniTrain::Backend::SIMExecutable");
    if (!HasDeviceGuardImpl(DeviceType::kCUDA)) {
      EXPECT_ERROR(Tensor::Empty({1}, DataType::kFloat32, Device(DeviceType::kCUDA)), "cuda");
    }
  });
}

TEST(DeviceGuardRegistry, TriesAgainAfterAFailedStart) {
  InChildProcess([] {
    RegisterPrivateUse1Backend({"mock", DataType::kBFloat16});
    static int attempts = 0;
    detail::DeviceGuardRegistrar(
        kPrivateUse1,
        [] {
          if (++attempts == 1) throw Error("the driver is not loaded");
          return test::MakeMockDeviceGuard();
        },
        "mock.cc", 1);
    EXPECT_ERROR(GetDeviceGuardImpl(kPrivateUse1), "the driver is not loaded");
    EXPECT_EQ(GetDeviceGuardImpl(kPrivateUse1).DeviceCount(), 2);
  });
}

TEST(DeviceGuardRegistry, TellsRuntimesWhetherToBeDeterministic) {
  InChildProcess([] {
    RegisterMockProvider();
    EXPECT_TRUE(IsDeterministic());
    GetDeviceGuardImpl(kPrivateUse1);
    EXPECT_TRUE(MockRuntime::deterministic);
    SetDeterministic(false);
    EXPECT_FALSE(MockRuntime::deterministic);
    EXPECT_FALSE(IsDeterministic());
  });
  InChildProcess([] {
    RegisterMockProvider();
    SetDeterministic(false);
    MockRuntime::deterministic = true;
    GetDeviceGuardImpl(kPrivateUse1);
    EXPECT_FALSE(MockRuntime::deterministic) << "a runtime that starts later is told, too";
  });
}

TEST(DeviceGuardImpl, HasDefaultsForWhatAProviderNeedNotHave) {
  DeviceGuardImpl& cpu = GetDeviceGuardImpl(DeviceType::kCPU);
  EXPECT_FALSE(cpu.IsCapturing(nullptr));
  EXPECT_FALSE(cpu.Traffic().has_value());
  EXPECT_NO_THROW(cpu.SetDeterministic(false));
  EXPECT_NO_THROW(cpu.PushProfilerRange("range"));
  EXPECT_NO_THROW(cpu.PopProfilerRange());
}

TEST(DeviceGuard, SetsAndRestoresTheCurrentDevice) {
  InChildProcess([] {
    RegisterMockProvider();
    {
      const DeviceGuard outer(Device(kPrivateUse1, 1));
      EXPECT_EQ(MockRuntime::current_device, 1);
      {
        const DeviceGuard inner(Device(kPrivateUse1, 0));
        EXPECT_EQ(MockRuntime::current_device, 0);
        const DeviceGuard cpu((Device()));
        EXPECT_EQ(MockRuntime::current_device, 0);
      }
      EXPECT_EQ(MockRuntime::current_device, 1);
      const int calls = MockRuntime::set_device_calls;
      { const DeviceGuard same(Device(kPrivateUse1, 1)); }
      EXPECT_EQ(MockRuntime::set_device_calls, calls) << "the device was current already";
    }
    EXPECT_EQ(MockRuntime::current_device, 0);
    EXPECT_ERROR(DeviceGuard(Device(DeviceType::kCPU, 1)), "cpu:1");
    EXPECT_ERROR(Tensor::Empty({1}, DataType::kFloat32, Device(kPrivateUse1, 2)), "mock:2");
    EXPECT_ERROR(Tensor::Empty({1}, DataType::kFloat32, Device(kPrivateUse1, -1)), "mock:-1");
    EXPECT_ERROR(Tensor::Empty({1}, DataType::kFloat32, Device(DeviceType::kCPU, 1)), "cpu:1");
  });
}

TEST(StreamGuard, SetsTheStreamOfOneDeviceAndThread) {
  InChildProcess([] {
    RegisterMockProvider();
    const Device first(kPrivateUse1, 0);
    const Device second(kPrivateUse1, 1);
    DeviceGuardImpl& impl = GetDeviceGuardImpl(kPrivateUse1);
    const StreamHandle a = impl.CreateStream(0);
    const StreamHandle b = impl.CreateStream(0);
    {
      const StreamGuard outer(first, a);
      const StreamGuard inner(first, b);
      EXPECT_EQ(CurrentStream(first), b);
      EXPECT_EQ(CurrentStream(second), nullptr);
      std::thread([&] { EXPECT_EQ(CurrentStream(first), nullptr); }).join();
      EXPECT_NO_THROW(Synchronize(first));
    }
    EXPECT_EQ(CurrentStream(first), nullptr);
    EXPECT_ERROR(CurrentStream(Device(kPrivateUse1, 64)), "mock:64");
    EXPECT_ERROR(StreamGuard(Device(kPrivateUse1, -1), a), "mock:-1");
    impl.DestroyStream(a);
    impl.DestroyStream(b);
  });
}

TEST(CpuDevice, BehavesLikeADeviceWhoseWorkIsAlwaysDone) {
  DeviceGuardImpl& cpu = GetDeviceGuardImpl(DeviceType::kCPU);
  EXPECT_EQ(cpu.DeviceCount(), 1);
  EXPECT_TRUE(cpu.IsHostMemory());
  const DeviceProperties properties = cpu.Properties(0);
  EXPECT_GT(properties.free_memory, 0u);
  EXPECT_LE(properties.free_memory, properties.total_memory);
  EXPECT_GE(properties.compute_units, 1);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{5} << 20}) {
    auto* pointer = static_cast<char*>(cpu.Allocate(bytes));
    ASSERT_NE(pointer, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % 64, 0u);
    cpu.FillBytesAsync(pointer, 7, bytes, nullptr);
    EXPECT_EQ(pointer[bytes - 1], 7);
    cpu.Free(pointer);
  }
  EXPECT_EQ(cpu.Allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(cpu.Allocate(SIZE_MAX / 4), nullptr);

  const StreamHandle stream = cpu.CreateStream(0);
  EXPECT_NE(stream, nullptr);
  const EventHandle start = cpu.CreateEvent();
  const EventHandle end = cpu.CreateEvent();
  EXPECT_TRUE(cpu.QueryEvent(start)) << "an event that was never recorded has nothing to wait for";
  cpu.SynchronizeEvent(start);
  cpu.StreamWaitEvent(stream, start);
  cpu.RecordEvent(start, stream);
  EXPECT_ERROR(cpu.ElapsedMilliseconds(start, end), "never recorded");
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  cpu.RecordEvent(end, stream);
  EXPECT_GE(cpu.ElapsedMilliseconds(start, end), 5.0f);
  cpu.DestroyEvent(start);
  cpu.DestroyEvent(end);
  cpu.DestroyStream(stream);
}

TEST(StaticTensor, MayOutliveEverythingElse) {
  tensor_in_static_object = Tensor::Empty({1 << 20});
  EXPECT_TRUE(tensor_in_static_object.defined());
  std::thread([] {
    thread_local Tensor tensor_of_thread;
    tensor_of_thread = Tensor::Empty({5});
  }).join();
}

}  // namespace
}  // namespace infini_train
