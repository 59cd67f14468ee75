#include "backends/runtime/runtime_device_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <infini/rt/cpu/runtime.h>
#include <infini/rt/device.h>

#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/private_use1.h"
#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "tests/common/errors.h"

namespace infini_train {
namespace {

using backend::RuntimeDeviceGuard;
namespace rt = ::infini::rt::runtime;
using Cpu = rt::Runtime<::infini::rt::Device::Type::kCpu>;
using CpuGuard = RuntimeDeviceGuard<Cpu>;

REGISTER_DEVICE_GUARD(kPrivateUse1, CpuGuard);

[[maybe_unused]] const bool prepared = [] {
  ::setenv("INFINI_RT_CPU_DEVICES", "2", /*overwrite=*/1);
  core::RegisterPrivateUse1Backend({"rt", DataType::kBFloat16});
  return true;
}();

/// Holds a stream until it is released.
class Gate {
 public:
  explicit Gate(StreamHandle stream) {
    const rt::Error error = Cpu::LaunchHostFunc(
        static_cast<rt::Stream>(stream),
        [](void* open) { static_cast<std::atomic<bool>*>(open)->wait(false); }, &open_);
    EXPECT_EQ(error, rt::kSuccess);
  }
  ~Gate() { Open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void Open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  std::atomic<bool> open_ = false;
};

class RuntimeDeviceGuardTest : public ::testing::Test {
 protected:
  void SetUp() override { guard().SetDevice(0); }
  void TearDown() override { guard().SynchronizeDevice(); }
  static DeviceGuardImpl& guard() { return GetDeviceGuardImpl(DeviceType::kPrivateUse1); }
};

using ::testing::HasSubstr;

TEST_F(RuntimeDeviceGuardTest, CountsAndSwitchesDevices) {
  EXPECT_EQ(guard().DeviceCount(), 2);
  guard().SetDevice(1);
  EXPECT_EQ(guard().CurrentDevice(), 1);
  std::thread([] {
    EXPECT_EQ(guard().CurrentDevice(), 0) << "current devices are per thread";
  }).join();
}

TEST_F(RuntimeDeviceGuardTest, PropertiesAreThoseOfTheDeviceAskedFor) {
  const DeviceProperties before = guard().Properties(1);
  EXPECT_FALSE(before.name.empty());
  EXPECT_GT(before.compute_units, 0);
  EXPECT_GT(before.total_memory, 0u);
  EXPECT_LE(before.free_memory, before.total_memory);
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  void* pointer = guard().Allocate(kBytes);
  EXPECT_EQ(guard().Properties(1).free_memory, before.free_memory) << "it is device 0's";
  EXPECT_LE(guard().Properties(0).free_memory + kBytes, guard().Properties(0).total_memory);
  EXPECT_EQ(guard().CurrentDevice(), 0);
  guard().Free(pointer);
}

TEST_F(RuntimeDeviceGuardTest, CopiesAndFillsInStreamOrder) {
  constexpr std::size_t kCount = 100000;
  std::vector<std::int32_t> values(kCount);
  std::iota(values.begin(), values.end(), 0);
  std::vector<std::int32_t> back(kCount, -1);
  const std::size_t bytes = kCount * sizeof(std::int32_t);
  const StreamHandle stream = guard().CreateStream(0);
  void* first = guard().Allocate(bytes);
  void* second = guard().Allocate(bytes);
  guard().CopyAsync(first, values.data(), bytes, CopyKind::kHostToDevice, stream);
  guard().CopyAsync(second, first, bytes, CopyKind::kDeviceToDevice, stream);
  guard().FillBytesAsync(second, 0xFF, sizeof(std::int32_t), stream);
  guard().CopyAsync(back.data(), second, bytes, CopyKind::kDeviceToHost, stream);
  guard().SynchronizeStream(stream);
  values[0] = -1;
  EXPECT_EQ(back, values);
  guard().CopyAsync(nullptr, nullptr, 0, CopyKind::kDeviceToHost, stream);
  guard().FillBytesAsync(nullptr, 0, 0, stream);
  guard().CopyPeerAsync(nullptr, 1, nullptr, 0, 0, stream);
  guard().Free(first);
  guard().Free(second);
  guard().DestroyStream(stream);
}

/// What the vendors' runtimes without copies between devices have.
struct CpuWithoutPeers {
  static rt::Error SetDevice(int device) { return Cpu::SetDevice(device); }
  static rt::Error GetDevice(int* device) { return Cpu::GetDevice(device); }
  static rt::Error GetDeviceCount(int* count) { return Cpu::GetDeviceCount(count); }
  static rt::Error DeviceSynchronize() { return Cpu::DeviceSynchronize(); }
  static rt::Error Malloc(void** ptr, std::size_t size) { return Cpu::Malloc(ptr, size); }
  static rt::Error Free(void* ptr) { return Cpu::Free(ptr); }
  static rt::Error MallocHost(void** ptr, std::size_t size) { return Cpu::MallocHost(ptr, size); }
  static rt::Error FreeHost(void* ptr) { return Cpu::FreeHost(ptr); }
  static rt::Error MemGetInfo(std::size_t* free, std::size_t* total) {
    return Cpu::MemGetInfo(free, total);
  }
  static rt::Error Memcpy(void* dst, const void* src, std::size_t count, rt::MemcpyKind kind) {
    return Cpu::Memcpy(dst, src, count, kind);
  }
  static rt::Error MemcpyAsync(void* dst, const void* src, std::size_t count, rt::MemcpyKind kind,
                               rt::Stream stream) {
    return Cpu::MemcpyAsync(dst, src, count, kind, stream);
  }
  static rt::Error Memset(void* ptr, int value, std::size_t count) {
    return Cpu::Memset(ptr, value, count);
  }
  static rt::Error MemsetAsync(void* ptr, int value, std::size_t count, rt::Stream stream) {
    return Cpu::MemsetAsync(ptr, value, count, stream);
  }
  static rt::Error StreamCreate(rt::Stream* stream) { return Cpu::StreamCreate(stream); }
  static rt::Error StreamDestroy(rt::Stream stream) { return Cpu::StreamDestroy(stream); }
  static rt::Error StreamSynchronize(rt::Stream stream) { return Cpu::StreamSynchronize(stream); }
  static rt::Error StreamWaitEvent(rt::Stream stream, rt::Event event, unsigned int flags) {
    return Cpu::StreamWaitEvent(stream, event, flags);
  }
  static rt::Error EventCreate(rt::Event* event) { return Cpu::EventCreate(event); }
  static rt::Error EventCreateWithFlags(rt::Event* event, unsigned int flags) {
    return Cpu::EventCreateWithFlags(event, flags);
  }
  static rt::Error EventRecord(rt::Event event, rt::Stream stream) {
    return Cpu::EventRecord(event, stream);
  }
  static rt::Error EventQuery(rt::Event event) { return Cpu::EventQuery(event); }
  static rt::Error EventSynchronize(rt::Event event) { return Cpu::EventSynchronize(event); }
  static rt::Error EventDestroy(rt::Event event) { return Cpu::EventDestroy(event); }
  static rt::Error EventElapsedTime(float* ms, rt::Event start, rt::Event end) {
    return Cpu::EventElapsedTime(ms, start, end);
  }
  static rt::Error GetLastError() { return Cpu::GetLastError(); }
  static rt::Error PeekAtLastError() { return Cpu::PeekAtLastError(); }

  static std::string ErrorDetail(rt::Error error) {
    return error == rt::kErrorInvalidDevice ? "there are two" : "";
  }
};

TEST_F(RuntimeDeviceGuardTest, CopiesBetweenDevices) {
  RuntimeDeviceGuard<CpuWithoutPeers> without_peers;
  EXPECT_EQ(without_peers.Properties(1).warp_size, 1);
  for (DeviceGuardImpl* impl : {&guard(), static_cast<DeviceGuardImpl*>(&without_peers)}) {
    const std::vector<std::int64_t> values = {1, 2, 3};
    const std::size_t bytes = values.size() * sizeof(values[0]);
    const StreamHandle stream = impl->CreateStream(0);
    void* here = impl->Allocate(bytes);
    impl->CopyAsync(here, values.data(), bytes, CopyKind::kHostToDevice, stream);
    impl->SetDevice(1);
    void* there = impl->Allocate(bytes);
    void* there_too = impl->Allocate(bytes);
    impl->SetDevice(0);
    impl->CopyPeerAsync(there, 1, here, 0, bytes, stream);
    EXPECT_EQ(impl->CurrentDevice(), 0);
    impl->SynchronizeStream(stream);
    impl->SetDevice(1);
    impl->CopyPeerAsync(there_too, 1, there, 1, bytes, nullptr);
    std::vector<std::int64_t> back(values.size());
    impl->CopyAsync(back.data(), there_too, bytes, CopyKind::kDeviceToHost, nullptr);
    impl->SynchronizeStream(nullptr);
    EXPECT_EQ(back, values);
    impl->Free(there);
    impl->Free(there_too);
    impl->SetDevice(0);
    impl->Free(here);
    impl->DestroyStream(stream);
  }
}

/// What CUDA does: a device that becomes current is set up. Counts how often.
struct CpuThatSetsUp : Cpu {
  static rt::Error SetDevice(int device) {
    const rt::Error error = Cpu::SetDevice(device);
    if (error == rt::kSuccess) in_use[device] = true;
    return error;
  }
  static bool IsInUse(int device) { return device < 0 || device > 1 || in_use[device]; }

  inline static bool in_use[2] = {};
};

TEST_F(RuntimeDeviceGuardTest, WorkOnOneDeviceSetsNoOtherUp) {
  RuntimeDeviceGuard<CpuThatSetsUp> impl;
  std::thread([&] {
    const auto read_on = [&](int device) {
      const int before = impl.CurrentDevice();
      impl.SetDevice(device);
      EXPECT_EQ(impl.CurrentDevice(), device);
      void* memory = impl.Allocate(16);
      impl.FillBytesAsync(memory, 1, 16, nullptr);
      impl.SynchronizeStream(nullptr);
      impl.Free(memory);
      impl.Properties(device);
      impl.SetDevice(before);
      EXPECT_EQ(impl.CurrentDevice(), before);
    };
    read_on(1);
    read_on(1);
    EXPECT_TRUE(CpuThatSetsUp::in_use[1]);
    EXPECT_FALSE(CpuThatSetsUp::in_use[0]) << "it was current before, and is not used";
    EXPECT_ERROR(impl.SetDevice(2), "SetDevice failed");
    EXPECT_EQ(impl.CurrentDevice(), 0);
    // It is current when something is done on it.
    const std::size_t free = impl.Properties(0).free_memory;
    constexpr std::size_t kBytes = std::size_t{1} << 20;
    void* memory = impl.Allocate(kBytes);
    EXPECT_TRUE(CpuThatSetsUp::in_use[0]);
    EXPECT_EQ(impl.Properties(0).free_memory, free - kBytes);
    impl.Free(memory);
    read_on(1);
    int current = -1;
    EXPECT_EQ(Cpu::GetDevice(&current), rt::kSuccess);
    EXPECT_EQ(current, 0) << "a device that is in use is current at once";
  }).join();
}

TEST_F(RuntimeDeviceGuardTest, StreamsAreOrderedByEventsAlone) {
  const StreamHandle slow = guard().CreateStream(0);
  const StreamHandle fast = guard().CreateStream(-1);
  const EventHandle start = guard().CreateEvent();
  const EventHandle done = guard().CreateEvent();
  EXPECT_TRUE(guard().QueryEvent(done)) << "an event that was never recorded holds nothing up";
  guard().RecordEvent(start, slow);
  Gate gate(slow);
  guard().RecordEvent(done, slow);
  EXPECT_FALSE(guard().QueryEvent(done));
  // Neither the default stream nor another one waits for it.
  guard().SynchronizeStream(nullptr);
  guard().SynchronizeStream(fast);
  const EventHandle after = guard().CreateEvent();
  guard().StreamWaitEvent(fast, done);
  guard().RecordEvent(after, fast);
  EXPECT_FALSE(guard().QueryEvent(after));
  gate.Open();
  guard().SynchronizeEvent(after);
  EXPECT_TRUE(guard().QueryEvent(done));
  EXPECT_GE(guard().ElapsedMilliseconds(start, done), 0.0f);
  for (const EventHandle event : {start, done, after})
    guard().DestroyEvent(event);
  guard().DestroyStream(slow);
  guard().DestroyStream(fast);
}

TEST_F(RuntimeDeviceGuardTest, PinnedMemoryDoesNotBlockTheCopy) {
  constexpr std::size_t kBytes = 1 << 20;
  auto* host = static_cast<char*>(guard().AllocateHost(kBytes));
  void* device = guard().Allocate(kBytes);
  const StreamHandle stream = guard().CreateStream(0);
  {
    const Gate gate(stream);
    guard().CopyAsync(device, host, kBytes, CopyKind::kHostToDevice, stream);
    host[0] = 'x';
  }
  char back = 0;
  guard().CopyAsync(&back, device, 1, CopyKind::kDeviceToHost, stream);
  EXPECT_EQ(back, 'x');
  guard().DestroyStream(stream);
  guard().Free(device);
  guard().FreeHost(host);
}

TEST_F(RuntimeDeviceGuardTest, KnowsWhatIsCaptured) {
  const StreamHandle stream = guard().CreateStream(0);
  EXPECT_FALSE(guard().IsCapturing(stream));
  EXPECT_FALSE(guard().IsCapturing(nullptr));
  ASSERT_EQ(Cpu::StreamBeginCapture(static_cast<rt::Stream>(stream), rt::kStreamCaptureModeGlobal),
            rt::kSuccess);
  EXPECT_TRUE(guard().IsCapturing(stream));
  EXPECT_FALSE(guard().IsCapturing(nullptr));
  rt::Graph graph = nullptr;
  ASSERT_EQ(Cpu::StreamEndCapture(static_cast<rt::Stream>(stream), &graph), rt::kSuccess);
  EXPECT_EQ(Cpu::GraphDestroy(graph), rt::kSuccess);
  EXPECT_FALSE(guard().IsCapturing(stream));
  guard().DestroyStream(stream);
}

TEST_F(RuntimeDeviceGuardTest, CapturedWorkRunsAtLaunches) {
  ASSERT_TRUE(guard().CanCapture());
  const StreamHandle stream = guard().CreateStream(0);
  auto* device = static_cast<char*>(guard().Allocate(4));
  guard().FillBytesAsync(device, 1, 4, stream);
  guard().SynchronizeStream(stream);
  guard().BeginCapture(stream);
  EXPECT_TRUE(guard().IsCapturing(stream));
  guard().FillBytesAsync(device, 2, 2, stream);
  void* more = guard().Allocate(64);
  EXPECT_NE(more, nullptr) << "memory can be allocated during a capture";
  guard().CopyAsync(device + 3, device, 1, CopyKind::kDeviceToDevice, stream);
  const GraphHandle graph = guard().EndCapture(stream);
  EXPECT_FALSE(guard().IsCapturing(stream));
  const auto read = [&] {
    std::string content(4, '\0');
    guard().CopyAsync(content.data(), device, 4, CopyKind::kDeviceToHost, nullptr);
    guard().SynchronizeStream(nullptr);
    return content;
  };
  EXPECT_EQ(read(), "\1\1\1\1");
  guard().LaunchGraph(graph, nullptr);
  EXPECT_EQ(read(), "\2\2\1\2");
  guard().FillBytesAsync(device, 5, 4, nullptr);
  guard().LaunchGraph(graph, nullptr);
  EXPECT_EQ(read(), "\2\2\5\2");
  guard().DestroyGraph(graph);
  guard().Free(more);
  guard().Free(device);
  guard().DestroyStream(stream);
}

TEST_F(RuntimeDeviceGuardTest, ABrokenCaptureIsOverAndThrows) {
  const StreamHandle stream = guard().CreateStream(0);
  guard().BeginCapture(stream);
  EXPECT_ERROR(guard().SynchronizeStream(stream), "kErrorStreamCaptureUnsupported");
  EXPECT_ERROR(guard().EndCapture(stream), "StreamEndCapture failed: ");
  EXPECT_FALSE(guard().IsCapturing(stream));
  EXPECT_EQ(Cpu::PeekAtLastError(), rt::kSuccess);
  guard().BeginCapture(stream);
  EXPECT_ERROR(guard().BeginCapture(stream), "StreamBeginCapture failed: ");
  guard().DestroyGraph(guard().EndCapture(stream));
  EXPECT_ERROR(guard().BeginCapture(nullptr), "StreamBeginCapture failed: ");
  guard().DestroyStream(stream);
}

TEST_F(RuntimeDeviceGuardTest, ARuntimeWithoutGraphsSaysSo) {
  RuntimeDeviceGuard<CpuWithoutPeers> without;
  EXPECT_FALSE(without.CanCapture());
  EXPECT_ERROR(without.BeginCapture(nullptr), "cannot capture");
  EXPECT_ERROR(without.EndCapture(nullptr), "cannot capture");
  EXPECT_ERROR(without.LaunchGraph(nullptr, nullptr), "cannot capture");
  without.DestroyGraph(nullptr);
}

TEST_F(RuntimeDeviceGuardTest, ErrorsNameTheCallTheCodeAndItsMeaning) {
  EXPECT_THAT(test::MessageOf([&] { guard().SetDevice(2); }),
              AllOf(HasSubstr("SetDevice failed: kErrorInvalidDevice (101), "),
                    HasSubstr(rt::GetErrorString(rt::kErrorInvalidDevice))));
  char host[8];
  void* device = guard().Allocate(sizeof(host));
  EXPECT_ERROR(guard().CopyAsync(host, device, sizeof(host) + 1, CopyKind::kDeviceToHost, nullptr),
               "MemcpyAsync failed: kErrorInvalidValue (1), ");
  guard().Free(device);
  RuntimeDeviceGuard<CpuWithoutPeers> explaining;
  EXPECT_THAT(test::MessageOf([&] { explaining.SetDevice(2); }),
              ::testing::EndsWith(": there are two"));
}

TEST_F(RuntimeDeviceGuardTest, AFailureIsNotBlamedOnALaterCall) {
  EXPECT_THROW(guard().SetDevice(-1), Error);
  EXPECT_EQ(Cpu::PeekAtLastError(), rt::kSuccess);
  int nothing = 0;
  guard().Free(&nothing);
  guard().FreeHost(&nothing);
  EXPECT_EQ(Cpu::PeekAtLastError(), rt::kSuccess);
}

TEST_F(RuntimeDeviceGuardTest, OutOfMemoryIsNull) {
  const std::size_t too_much = guard().Properties(0).total_memory * 2;
  EXPECT_EQ(guard().Allocate(too_much), nullptr);
  EXPECT_EQ(Cpu::PeekAtLastError(), rt::kSuccess);
  EXPECT_ERROR(Tensor::Empty({static_cast<std::int64_t>(too_much)}, DataType::kUInt8,
                             DeviceType::kPrivateUse1),
               "rt:0");
}

TEST_F(RuntimeDeviceGuardTest, MapsMemoryWhereTheRuntimeDoes) {
  const std::size_t piece = guard().MappingGranularity();
  ASSERT_GT(piece, 0u);
  const std::size_t pieces = guard().Properties(0).total_memory / piece + 1;
  auto* range = static_cast<std::byte*>(guard().ReserveAddresses(pieces * piece));
  ASSERT_NE(range, nullptr);
  EXPECT_FALSE(guard().MapMemory(range, pieces * piece)) << "more than there is";
  EXPECT_EQ(Cpu::PeekAtLastError(), rt::kSuccess);
  const std::size_t free_memory = guard().Properties(0).free_memory;
  ASSERT_TRUE(guard().MapMemory(range + piece, piece));
  EXPECT_EQ(guard().Properties(0).free_memory, free_memory - piece);
  EXPECT_ERROR(guard().MapMemory(range + piece, piece), "MemMap failed: kErrorInvalidValue (1), ");
  guard().UnmapMemory(range + piece, piece);
  guard().UnmapMemory(range + piece, piece);
  guard().ReleaseAddresses(range, pieces * piece);
  guard().ReleaseAddresses(range, pieces * piece);
  EXPECT_EQ(guard().ReserveAddresses(1), nullptr);
  EXPECT_EQ(Cpu::PeekAtLastError(), rt::kSuccess);
  EXPECT_EQ(guard().Properties(0).free_memory, free_memory);
}

/// A runtime of devices that map nothing, as it finds out when it is asked.
struct CpuThatMapsNothing : Cpu {
  static rt::Error MemGetAllocationGranularity(std::size_t*) { return rt::kErrorNotSupported; }
};

TEST_F(RuntimeDeviceGuardTest, ADeviceThatMapsNothingSaysSo) {
  RuntimeDeviceGuard<CpuThatMapsNothing> without;
  EXPECT_EQ(without.MappingGranularity(), 0u);
  EXPECT_EQ(Cpu::PeekAtLastError(), rt::kSuccess);
}

TEST_F(RuntimeDeviceGuardTest, CarriesTensorsAndTheirAllocator) {
  const Device second(DeviceType::kPrivateUse1, 1);
  EXPECT_EQ(Device::Parse("rt:1"), second);
  EXPECT_THROW(Device::Parse("rt:2"), Error);
  const MemoryStats before = allocator::Stats(second);
  {
    const std::vector<float> values = {1, 2, 3};
    const Tensor tensor = Tensor::Empty({3}, DataType::kFloat32, second);
    tensor.CopyFromHost(values.data(), values.size() * sizeof(float));
    EXPECT_EQ(tensor.ToVector<float>(), values);
    EXPECT_GT(allocator::Stats(second).allocated, before.allocated);
  }
  EXPECT_EQ(allocator::Stats(second).allocated, before.allocated);
  EXPECT_GT(allocator::Stats(second).peak_allocated, before.peak_allocated);
}

}  // namespace
}  // namespace infini_train
