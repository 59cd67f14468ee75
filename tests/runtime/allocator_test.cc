// The caching allocator over a provider's runtime, and many threads on all of it.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/graph.h"
#include "infini_train/core/tensor.h"
#include "tests/runtime/runtime_test.h"

namespace infini_train::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class RuntimeAllocatorTest : public RuntimeTest {
 protected:
  RuntimeAllocatorTest() : guard_(device()) { allocator::EmptyCache(device()); }

  static std::uint8_t* Allocate(std::size_t bytes) {
    return static_cast<std::uint8_t*>(allocator::Allocate(device(), bytes));
  }
  static void Free(void* pointer) { allocator::Free(device(), pointer); }
  static Bytes Read(const std::uint8_t* from, std::size_t bytes, StreamHandle stream) {
    Bytes content(bytes);
    impl().CopyAsync(content.data(), from, bytes, CopyKind::kDeviceToHost, stream);
    impl().SynchronizeStream(stream);
    return content;
  }

  const DeviceGuard guard_;
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(RuntimeAllocatorTest);

TEST_P(RuntimeAllocatorTest, AFreedBlockIsReusedWithoutAskingTheProvider) {
  void* first = Allocate(3 * kMiB);
  Free(first);
  const std::uint64_t asked = allocator::Stats(device()).provider_allocations;
  for (int i = 0; i < 10; ++i) {
    void* again = Allocate(3 * kMiB);
    EXPECT_EQ(again, first);
    Free(again);
  }
  EXPECT_EQ(allocator::Stats(device()).provider_allocations, asked);
}

TEST_P(RuntimeAllocatorTest, StatisticsFollow) {
  const MemoryStats before = allocator::Stats(device());
  allocator::ResetPeakStats(device());
  void* block = Allocate(5 * kMiB);
  const MemoryStats during = allocator::Stats(device());
  EXPECT_EQ(during.allocated, before.allocated + 5 * kMiB);
  EXPECT_GE(during.reserved, during.allocated);
  EXPECT_EQ(during.allocations, before.allocations + 1);
  Free(block);
  allocator::EmptyCache(device());
  const MemoryStats after = allocator::Stats(device());
  EXPECT_EQ(after.allocated, before.allocated);
  EXPECT_EQ(after.reserved, before.reserved);
  EXPECT_EQ(after.peak_allocated, during.allocated);
}

TEST_P(RuntimeAllocatorTest, ItsFiguresAreTheDriversWithinFivePercent) {
  if (device().is_cpu()) GTEST_SKIP() << "the host's memory is everybody's";
  if (std::getenv("INFINI_TRAIN_TEST_KEEPS_MEMORY") != nullptr)
    GTEST_SKIP() << "the provider was told to keep what it was given";
  const auto free_memory = [] { return impl().Properties(device().index()).free_memory; };
  const std::size_t free_before = free_memory();
  const std::size_t reserved_before = allocator::Stats(device()).reserved;
  allocator::ResetPeakStats(device());
  std::vector<void*> blocks;
  for (const std::size_t bytes : {1000ul, 100'000ul, 3 * kMiB, 60 * kMiB + 1, 100 * kMiB, 7 * kMiB})
    blocks.push_back(Allocate(bytes));
  const auto taken = static_cast<double>(free_before - free_memory());
  const MemoryStats stats = allocator::Stats(device());
  EXPECT_NEAR(static_cast<double>(stats.reserved - reserved_before), taken, 0.05 * taken);
  EXPECT_EQ(stats.peak_reserved, stats.reserved);
  for (void* block : blocks)
    Free(block);
  allocator::EmptyCache(device());
  EXPECT_NEAR(static_cast<double>(free_memory()), static_cast<double>(free_before), 0.05 * taken);
}

TEST_P(RuntimeAllocatorTest, WorkOnOneDeviceTakesNothingOfTheOthers) {
  const int devices = impl().DeviceCount();
  if (devices < 2) GTEST_SKIP() << "there is one device";
  const Device used(device().type(), devices - 1);
  const auto others = [&] {
    std::vector<std::size_t> taken;
    for (int i = 0; i < devices - 1; ++i) {
      taken.push_back(impl().Properties(i).free_memory);
      taken.push_back(allocator::Stats(Device(device().type(), i)).reserved);
    }
    return taken;
  };
  const std::vector<std::size_t> before = others();
  std::vector<std::size_t> during;
  std::thread([&] {  // A device that it does not use is current on this thread.
    const Tensor x = Tensor::Empty({1 << 20}, DataType::kUInt8, used);
    const Tensor y = Tensor::Empty({1 << 20}, DataType::kUInt8, used);
    x.CopyFromHost(Bytes(1 << 20, 7).data(), 1 << 20);
    const auto copy = [&] {
      const Tensor between = Tensor::Empty({1 << 20}, DataType::kUInt8, used);
      const StreamHandle stream = CurrentStream(used);
      impl().CopyAsync(between.raw_data(), x.raw_data(), 1 << 20, CopyKind::kDeviceToDevice,
                       stream);
      impl().CopyAsync(y.raw_data(), between.raw_data(), 1 << 20, CopyKind::kDeviceToDevice,
                       stream);
    };
    if (DeviceGraph::IsSupported(used)) {
      DeviceGraph graph(used, copy);
      graph.Launch();
      during = others();
    } else {
      const DeviceGuard guard(used);
      copy();
    }
    EXPECT_TRUE(y.ToVector<std::uint8_t>() == Bytes(1 << 20, 7));
    EXPECT_EQ(impl().CurrentDevice(), 0);
  })
      .join();
  EXPECT_TRUE(during.empty() || during == before);
  EXPECT_EQ(others(), before);
}

TEST_P(RuntimeAllocatorTest, BlocksOfAStreamAreReusedInItsOrder) {
  const Stream stream;
  const StreamGuard guard(device(), stream.get());
  std::uint8_t* first = Allocate(4 * kMiB);
  std::uint8_t* kept = Allocate(4 * kMiB);
  impl().FillBytesAsync(first, 1, 4 * kMiB, stream.get());
  impl().CopyAsync(kept, first, 4 * kMiB, CopyKind::kDeviceToDevice, stream.get());
  Free(first);  // While the copy may still be to come.
  std::uint8_t* second = Allocate(4 * kMiB);
  EXPECT_EQ(second, first);
  impl().FillBytesAsync(second, 2, 4 * kMiB, stream.get());
  EXPECT_TRUE(Read(kept, 4 * kMiB, stream.get()) == Bytes(4 * kMiB, 1));
  Free(second);
  Free(kept);
}

TEST_P(RuntimeAllocatorTest, ABlockThatAnotherStreamReadsIsNotOverwritten) {
  const Stream reader;
  const Event written;
  std::uint8_t* kept = Allocate(4 * kMiB);
  for (int round = 1; round <= 10; ++round) {
    std::uint8_t* block = Allocate(4 * kMiB);
    impl().FillBytesAsync(block, round, 4 * kMiB, nullptr);
    impl().RecordEvent(written.get(), nullptr);
    impl().StreamWaitEvent(reader.get(), written.get());
    for (int i = 0; i < 20; ++i)  // The reader is late.
      impl().FillBytesAsync(kept, 99, 4 * kMiB, reader.get());
    impl().CopyAsync(kept, block, 4 * kMiB, CopyKind::kDeviceToDevice, reader.get());
    allocator::RecordStream(device(), block, reader.get());
    Free(block);
    std::uint8_t* next = Allocate(4 * kMiB);
    impl().FillBytesAsync(next, 77, 4 * kMiB, nullptr);
    ASSERT_TRUE(Read(kept, 4 * kMiB, reader.get()) ==
                Bytes(4 * kMiB, static_cast<std::uint8_t>(round)));
    impl().SynchronizeStream(nullptr);
    Free(next);
  }
  Free(kept);
}

TEST_P(RuntimeAllocatorTest, EmptyingTheCacheWaitsForItsUsers) {
  const Stream reader;
  std::uint8_t* block = Allocate(30 * kMiB);
  std::uint8_t* kept = Allocate(30 * kMiB);
  impl().SynchronizeStream(nullptr);
  impl().FillBytesAsync(block, 6, 30 * kMiB, reader.get());
  impl().CopyAsync(kept, block, 30 * kMiB, CopyKind::kDeviceToDevice, reader.get());
  allocator::RecordStream(device(), block, reader.get());
  Free(block);
  allocator::EmptyCache(device());
  EXPECT_TRUE(Read(kept, 30 * kMiB, reader.get()) == Bytes(30 * kMiB, 6));
  Free(kept);
}

class RuntimeThreadsTest : public RuntimeTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(RuntimeThreadsTest);

TEST_P(RuntimeThreadsTest, SixtyFourThreadsUseEveryDeviceAtOnce) {
  constexpr int kThreads = 64;
  constexpr int kRounds = 12;
  const int devices = impl().DeviceCount();
  std::atomic<int> mistakes = 0;
  const auto work = [&](int thread) {
    const Device own(device().type(), thread % devices);
    const DeviceGuard guard(own);
    const Stream stream;
    const StreamGuard stream_guard(own, stream.get());
    const Event event;
    for (int round = 0; round < kRounds; ++round) {
      const auto value = static_cast<std::uint8_t>(thread * kRounds + round);
      const std::size_t bytes = 1 + static_cast<std::size_t>(thread * 977 + round * 3331);
      auto* x = static_cast<std::uint8_t*>(allocator::Allocate(own, bytes));
      auto* y = static_cast<std::uint8_t*>(allocator::Allocate(own, bytes));
      void* raw = impl().Allocate(bytes);
      impl().FillBytesAsync(x, value, bytes, stream.get());
      impl().CopyAsync(raw, x, bytes, CopyKind::kDeviceToDevice, stream.get());
      impl().RecordEvent(event.get(), stream.get());
      const Stream other;
      impl().StreamWaitEvent(other.get(), event.get());
      impl().CopyAsync(y, raw, bytes, CopyKind::kDeviceToDevice, other.get());
      allocator::RecordStream(own, y, other.get());
      Bytes content(bytes);
      impl().CopyAsync(content.data(), y, bytes, CopyKind::kDeviceToHost, other.get());
      impl().SynchronizeStream(other.get());
      if (content != Bytes(bytes, value) || impl().CurrentDevice() != own.index() ||
          !impl().QueryEvent(event.get())) {
        ++mistakes;
      }
      impl().Free(raw);
      allocator::Free(own, x);
      allocator::Free(own, y);
      if (thread % 16 == 0 && round % 4 == 0) allocator::EmptyCache(own);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back(work, i);
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(mistakes, 0);
}

}  // namespace
}  // namespace infini_train::test
