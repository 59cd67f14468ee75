#include <infini/rt.h>
#include <infini/rt/cpu/runtime.h>

#include <sys/resource.h>
#include <unistd.h>

#include <thread>

#include <gtest/gtest.h>

namespace infini::rt::runtime {
namespace {

using Cpu = Runtime<Device::Type::kCpu>;

int NiceValueOfThisThread() {
  return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
}

/// What a thread gets that asks for so much more than it has.
int NiceValueAfterAskingFor(int more) {
  int result = 0;
  std::thread([&] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), NiceValueOfThisThread() + more);
    result = NiceValueOfThisThread();
  }).join();
  return result;
}

int NiceValueInAStreamOf(int priority) {
  Stream stream = nullptr;
  EXPECT_EQ(Cpu::StreamCreateWithPriority(&stream, kStreamNonBlocking, priority), kSuccess);
  int result = 99;
  auto note = [](void* data) { *static_cast<int*>(data) = NiceValueOfThisThread(); };
  EXPECT_EQ(Cpu::LaunchHostFunc(stream, note, &result), kSuccess);
  EXPECT_EQ(Cpu::StreamSynchronize(stream), kSuccess);
  EXPECT_EQ(Cpu::StreamDestroy(stream), kSuccess);
  return result;
}

TEST(CpuPriority, IsAddedToTheNiceValueOfTheWorker) {
  int least = 99, greatest = 99;
  ASSERT_EQ(Cpu::DeviceGetStreamPriorityRange(&least, &greatest), kSuccess);
  EXPECT_EQ(least, 0);
  EXPECT_EQ(greatest, -5);
  // Workers are handed on, so each stream has to set what it needs.
  for (int round = 0; round < 3; ++round) {
    for (int priority : {greatest, least, -2}) {
      EXPECT_EQ(NiceValueInAStreamOf(priority), NiceValueAfterAskingFor(priority));
    }
  }
  EXPECT_EQ(NiceValueInAStreamOf(-99), NiceValueAfterAskingFor(greatest));
  EXPECT_EQ(NiceValueInAStreamOf(99), NiceValueAfterAskingFor(least));
}

}  // namespace
}  // namespace infini::rt::runtime
