#include <infini/rt.h>
#include <infini/rt/cpu/runtime.h>

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

namespace infini::rt::runtime {
namespace {

using Cpu = Runtime<Device::Type::kCpu>;

/// Runs with INFINI_RT_CPU_DEVICES=3.
class CpuDevices : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(Cpu::SetDevice(0), kSuccess); }
  void TearDown() override {
    Cpu::SetDevice(0);
    Cpu::GetLastError();
  }

  static std::size_t FreeBytes(int device) {
    std::size_t free = 0;
    EXPECT_EQ(Cpu::SetDevice(device), kSuccess);
    EXPECT_EQ(Cpu::MemGetInfo(&free, nullptr), kSuccess);
    return free;
  }
};

TEST_F(CpuDevices, EnvironmentSetsTheCount) {
  int count = 0;
  ASSERT_EQ(Cpu::GetDeviceCount(&count), kSuccess);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(Cpu::SetDevice(3), kErrorInvalidDevice);
}

TEST_F(CpuDevices, MemoryIsCountedPerDevice) {
  std::size_t before[3];
  for (int i = 0; i < 3; ++i)
    before[i] = FreeBytes(i);
  ASSERT_EQ(Cpu::SetDevice(1), kSuccess);
  void* ptr = nullptr;
  ASSERT_EQ(Cpu::Malloc(&ptr, 1 << 20), kSuccess);
  EXPECT_EQ(FreeBytes(0), before[0]);
  EXPECT_EQ(FreeBytes(1), before[1] - (1 << 20));
  EXPECT_EQ(FreeBytes(2), before[2]);
  // Memory is freed where it belongs, whatever device is current.
  ASSERT_EQ(Cpu::Free(ptr), kSuccess);
  EXPECT_EQ(FreeBytes(1), before[1]);
}

TEST_F(CpuDevices, DevicesShareTheSystemsMemory) {
  DeviceProp prop;
  ASSERT_EQ(Cpu::GetDeviceProperties(&prop, 2), kSuccess);
  void* ptr = nullptr;
  EXPECT_EQ(Cpu::Malloc(&ptr, prop.total_global_mem + 1), kErrorMemoryAllocation);
}

TEST_F(CpuDevices, DefaultStreamsOfDevicesAreIndependent) {
  Stream busy = nullptr;
  std::atomic<bool> open{false};
  ASSERT_EQ(Cpu::StreamCreate(&busy), kSuccess);
  auto wait = [](void* data) {
    while (!static_cast<std::atomic<bool>*>(data)->load()) {
    }
  };
  ASSERT_EQ(Cpu::LaunchHostFunc(busy, wait, &open), kSuccess);
  EXPECT_EQ(Cpu::StreamQuery(nullptr), kErrorNotReady);
  ASSERT_EQ(Cpu::SetDevice(1), kSuccess);
  EXPECT_EQ(Cpu::StreamQuery(nullptr), kSuccess);
  EXPECT_EQ(Cpu::DeviceSynchronize(), kSuccess);
  open = true;
  EXPECT_EQ(Cpu::StreamDestroy(busy), kSuccess);
  ASSERT_EQ(Cpu::SetDevice(0), kSuccess);
  EXPECT_EQ(Cpu::DeviceSynchronize(), kSuccess);
}

TEST_F(CpuDevices, PeerCopiesOrderBothDefaultStreams) {
  constexpr std::size_t kSize = 1 << 20;
  void *a = nullptr, *b = nullptr;
  ASSERT_EQ(Cpu::SetDevice(1), kSuccess);
  ASSERT_EQ(Cpu::Malloc(&a, kSize), kSuccess);
  ASSERT_EQ(Cpu::SetDevice(2), kSuccess);
  ASSERT_EQ(Cpu::Malloc(&b, kSize), kSuccess);
  EXPECT_EQ(Cpu::MemcpyPeer(b, 1, a, 1, kSize), kErrorInvalidValue);
  std::vector<unsigned char> host(kSize);
  for (int value = 1; value <= 20; ++value) {
    ASSERT_EQ(Cpu::SetDevice(1), kSuccess);
    ASSERT_EQ(Cpu::Memset(a, value, kSize), kSuccess);
    ASSERT_EQ(Cpu::SetDevice(0), kSuccess);
    ASSERT_EQ(Cpu::MemcpyPeer(b, 2, a, 1, kSize), kSuccess);
    ASSERT_EQ(Cpu::SetDevice(2), kSuccess);
    ASSERT_EQ(Cpu::Memcpy(host.data(), b, kSize, kMemcpyDeviceToHost), kSuccess);
    EXPECT_EQ(host.front(), value);
    EXPECT_EQ(host.back(), value);
  }
  EXPECT_EQ(Cpu::Free(a), kSuccess);
  EXPECT_EQ(Cpu::Free(b), kSuccess);
}

TEST_F(CpuDevices, CopiesAreCheckedAgainstAllocations) {
  void* ptr = nullptr;
  std::vector<char> host(4096);
  ASSERT_EQ(Cpu::Malloc(&ptr, 1024), kSuccess);
  char* end = static_cast<char*>(ptr) + 1000;
  EXPECT_EQ(Cpu::Memcpy(host.data(), ptr, 2048, kMemcpyDeviceToHost), kErrorInvalidValue);
  EXPECT_EQ(Cpu::Memcpy(end, host.data(), 25, kMemcpyHostToDevice), kErrorInvalidValue);
  EXPECT_EQ(Cpu::Memcpy(end, host.data(), 24, kMemcpyHostToDevice), kSuccess);
  EXPECT_EQ(Cpu::Memcpy(host.data(), host.data() + 64, 8, kMemcpyDeviceToDevice),
            kErrorInvalidValue);
  EXPECT_EQ(Cpu::Memset(ptr, 0, 1025), kErrorInvalidValue);
  EXPECT_EQ(Cpu::Free(ptr), kSuccess);
}

TEST_F(CpuDevices, DestroyedHandlesAreRecognised) {
  Stream stream = nullptr;
  Event event = nullptr;
  ASSERT_EQ(Cpu::StreamCreate(&stream), kSuccess);
  ASSERT_EQ(Cpu::EventCreate(&event), kSuccess);
  ASSERT_EQ(Cpu::StreamDestroy(stream), kSuccess);
  ASSERT_EQ(Cpu::EventDestroy(event), kSuccess);
  EXPECT_EQ(Cpu::StreamDestroy(stream), kErrorInvalidResourceHandle);
  EXPECT_EQ(Cpu::StreamSynchronize(stream), kErrorInvalidResourceHandle);
  EXPECT_EQ(Cpu::EventDestroy(event), kErrorInvalidResourceHandle);
  EXPECT_EQ(Cpu::EventQuery(event), kErrorInvalidResourceHandle);
}

}  // namespace
}  // namespace infini::rt::runtime
