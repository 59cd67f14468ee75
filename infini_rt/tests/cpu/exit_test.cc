#include <infini/rt.h>
#include <infini/rt/cpu/runtime.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

namespace infini::rt::runtime {
namespace {

using Cpu = Runtime<Device::Type::kCpu>;

/// Calls the runtime from a static destructor, after it has stopped.
struct LateCaller {
  bool armed = false;
  ~LateCaller() {
    if (!armed) return;
    void* ptr = nullptr;
    if (Cpu::Malloc(&ptr, 64) != kErrorCudartUnloading) std::_Exit(3);
  }
};

LateCaller late_caller;

TEST(CpuExit, WithWorkInFlight) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        late_caller.armed = true;
        for (int i = 0; i < 8; ++i) {
          Stream stream = nullptr;
          Event event = nullptr;
          void* ptr = nullptr;
          Cpu::StreamCreate(&stream);
          Cpu::EventCreate(&event);
          Cpu::MallocAsync(&ptr, 1 << 20, stream);
          for (int k = 0; k < 1000; ++k) {
            Cpu::MemsetAsync(ptr, k, 1 << 20, stream);
            Cpu::EventRecord(event, stream);
          }
          Cpu::MemsetAsync(ptr, 0, 1 << 20, nullptr);
        }
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(CpuExit, WithAFunctionThatNeverReturns) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Stream stream = nullptr;
        Cpu::StreamCreate(&stream);
        Cpu::LaunchHostFunc(
            stream, [](void*) { std::this_thread::sleep_for(std::chrono::hours(1)); }, nullptr);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(CpuExit, ThreadsWithTheirOwnDefaultStreamsEnd) {
  for (int i = 0; i < 20; ++i) {
    std::thread([] {
      void* ptr = nullptr;
      ASSERT_EQ(Cpu::Malloc(&ptr, 64), kSuccess);
      EXPECT_EQ(Cpu::MemsetAsync(ptr, 1, 64, kStreamPerThread), kSuccess);
      EXPECT_EQ(Cpu::Free(ptr), kSuccess);
    }).join();
  }
  EXPECT_EQ(Cpu::DeviceSynchronize(), kSuccess);
}

}  // namespace
}  // namespace infini::rt::runtime
