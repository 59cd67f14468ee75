#include <infini/rt.h>
#include <infini/rt/cpu/runtime.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

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

// Whatever an operation owns is dropped with it: under a leak checker, nothing is left.
TEST(CpuExit, WithEveryKindOfWorkInFlight) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        constexpr std::size_t kBytes = 4096;
        const std::vector<unsigned char> pageable(kBytes);
        auto kernel = [](const void*) { return kSuccess; };
        auto nothing = [](void*) {};
        auto doze = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
        Stream stream = nullptr;
        Stream other = nullptr;
        Stream capturing = nullptr;
        Event event = nullptr;
        void* device = nullptr;
        void* pinned = nullptr;
        Graph graph = nullptr;
        GraphExec exec = nullptr;
        bool good = true;
        auto ok = [&good](Error error) { good = good && error == kSuccess; };
        for (Stream* each : {&stream, &other, &capturing})
          ok(Cpu::StreamCreateWithFlags(each, kStreamNonBlocking));
        ok(Cpu::EventCreate(&event));
        ok(Cpu::Malloc(&device, kBytes));
        ok(Cpu::MallocHost(&pinned, kBytes));
        auto enqueue = [&](Stream to) {
          ok(Cpu::MemsetAsync(device, 1, kBytes, to));
          ok(Cpu::MemcpyAsync(pinned, device, kBytes, kMemcpyDeviceToHost, to));
          ok(Cpu::LaunchKernel(kernel, pageable.data(), kBytes, to));
          ok(Cpu::LaunchHostFunc(to, nothing, nullptr));
        };
        ok(Cpu::StreamBeginCapture(stream, kStreamCaptureModeRelaxed));
        enqueue(stream);
        ok(Cpu::StreamEndCapture(stream, &graph));
        ok(Cpu::GraphInstantiate(&exec, graph, 0));

        ok(Cpu::LaunchHostFunc(stream, doze, nullptr));
        for (int i = 0; i < 1000; ++i) {  // more than a queue keeps for its next records
          void* block = nullptr;
          enqueue(stream);
          ok(Cpu::MallocAsync(&block, kBytes, stream));
          ok(Cpu::MemcpyAsync(block, pageable.data(), kBytes, kMemcpyHostToDevice, stream));
          ok(Cpu::GraphLaunch(exec, stream));
          ok(Cpu::EventRecord(event, stream));
          ok(Cpu::StreamWaitEvent(other, event, 0));
          ok(Cpu::MemsetAsync(block, 2, kBytes, other));
          if (i % 2 == 0) ok(Cpu::FreeAsync(block, other));
        }
        ok(Cpu::StreamBeginCapture(capturing, kStreamCaptureModeRelaxed));
        enqueue(capturing);
        // Half of the handles are still open.
        ok(Cpu::GraphExecDestroy(exec));
        ok(Cpu::EventDestroy(event));
        ok(Cpu::StreamDestroy(other));
        std::exit(good ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(CpuExit, WithAFunctionThatNeverReturns) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Stream stream = nullptr;
        std::atomic<bool> running{false};
        auto function = [](void* data) {
          static_cast<std::atomic<bool>*>(data)->store(true);
          std::this_thread::sleep_for(std::chrono::hours(1));
        };
        Cpu::StreamCreate(&stream);
        Cpu::LaunchHostFunc(stream, function, &running);
        while (!running)
          std::this_thread::yield();
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
