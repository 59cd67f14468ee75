#include <chrono>
#include <memory>

#include "semantics/fixture.h"

namespace infini::rt::runtime {
namespace {

/// Order between streams: an event is a point in a stream, not a flag on the host.
class OrderingSemantics : public Semantics {
 protected:
  static constexpr std::size_t kLarge = 16 << 20;
  static constexpr int kFills = 24;
  static constexpr int kRepeats = 10;

  /// Fills the buffer with 1, 2, ... so that it ends as all `kFills`.
  static void Slow(Stream stream, void* ptr) {
    for (int i = 1; i <= kFills; ++i)
      ASSERT_OK(MemsetAsync(ptr, i, kLarge, stream));
  }
};

TEST_P(OrderingSemantics, WaitMakesAStreamFollowAnother) {
  TestStream first, second;
  DeviceBuffer x(kLarge), y(kLarge);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    TestEvent event;
    Slow(first, x.get());
    ASSERT_OK(EventRecord(event, first));
    ASSERT_OK(StreamWaitEvent(second, event, 0));
    ASSERT_OK(MemcpyAsync(y.get(), x.get(), kLarge, kMemcpyDeviceToDevice, second));
    ASSERT_OK(StreamSynchronize(second));
    EXPECT_TRUE(AllEqual(y.Read(), kFills));
  }
}

TEST_P(OrderingSemantics, WaitKeepsTheRecordThatWasCurrent) {
  TestStream first, second, third;
  DeviceBuffer x(kLarge), y(kLarge);
  TestEvent event;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    Slow(first, x.get());
    ASSERT_OK(EventRecord(event, first));
    ASSERT_OK(StreamWaitEvent(second, event, 0));
    ASSERT_OK(EventRecord(event, third));
    ASSERT_OK(EventSynchronize(event));
    ASSERT_OK(MemcpyAsync(y.get(), x.get(), kLarge, kMemcpyDeviceToDevice, second));
    ASSERT_OK(StreamSynchronize(second));
    EXPECT_TRUE(AllEqual(y.Read(), kFills));
  }
}

TEST_P(OrderingSemantics, WaitBeforeRecordWaitsForNothing) {
  REQUIRE_FEATURE(kFeatureHostFunction);
  TestStream busy, free;
  TestEvent event;
  Gate gate;
  gate.Close(busy);
  ASSERT_OK(StreamWaitEvent(free, event, 0));
  ASSERT_OK(EventRecord(event, busy));
  EXPECT_OK(StreamSynchronize(free));
  EXPECT_EQ(EventQuery(event), kErrorNotReady);
  gate.Open();
  EXPECT_OK(StreamSynchronize(busy));
}

TEST_P(OrderingSemantics, ElapsedTimeCoversTheWork) {
  TestStream stream;
  DeviceBuffer x(kLarge);
  TestEvent start, end;
  Slow(stream, x.get());
  ASSERT_OK(StreamSynchronize(stream));
  ASSERT_OK(EventRecord(start, stream));
  Slow(stream, x.get());
  ASSERT_OK(EventRecord(end, stream));
  float ms = 0;
  Error at_once = EventElapsedTime(&ms, start, end);
  EXPECT_TRUE(at_once == kErrorNotReady || (at_once == kSuccess && ms > 0)) << at_once;
  ASSERT_OK(EventSynchronize(end));
  ASSERT_OK(EventElapsedTime(&ms, start, end));
  auto begin = std::chrono::steady_clock::now();
  Slow(stream, x.get());
  ASSERT_OK(StreamSynchronize(stream));
  std::chrono::duration<float, std::milli> wall = std::chrono::steady_clock::now() - begin;
  // Loose, for busy machines; counting only the calls would be off by orders of magnitude.
  EXPECT_GE(ms, wall.count() / 20);
  EXPECT_LE(ms, wall.count() * 20);
}

TEST_P(OrderingSemantics, PollingLeavesNoErrorBehind) {
  TestStream stream;
  DeviceBuffer x(kLarge);
  TestEvent event;
  Slow(stream, x.get());
  ASSERT_OK(EventRecord(event, stream));
  Error status = kErrorNotReady;
  while ((status = EventQuery(event)) == kErrorNotReady) {
    void* ptr = nullptr;
    ASSERT_OK(Malloc(&ptr, 16));
    ASSERT_OK(Free(ptr));
    ASSERT_OK(GetLastError());
  }
  EXPECT_OK(status);
}

TEST_P(OrderingSemantics, MemoryFreedInOneStreamIsNotReusedTooEarly) {
  REQUIRE_FEATURE(kFeatureAsyncMemory);
  TestStream first, second;
  PinnedBuffer h(kLarge), k(kLarge);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    void *p = nullptr, *q = nullptr;
    ASSERT_OK(MallocAsync(&p, kLarge, first));
    Slow(first, p);
    ASSERT_OK(MemcpyAsync(h.get(), p, kLarge, kMemcpyDeviceToHost, first));
    ASSERT_OK(FreeAsync(p, first));
    ASSERT_OK(MallocAsync(&q, kLarge, second));
    ASSERT_OK(MemsetAsync(q, 99, kLarge, second));
    ASSERT_OK(MemcpyAsync(k.get(), q, kLarge, kMemcpyDeviceToHost, second));
    ASSERT_OK(FreeAsync(q, second));
    ASSERT_OK(StreamSynchronize(first));
    ASSERT_OK(StreamSynchronize(second));
    EXPECT_TRUE(AllEqual(h, kFills));
    EXPECT_TRUE(AllEqual(k, 99));
  }
}

TEST_P(OrderingSemantics, DestroyingEventAndStreamKeepsTheOrder) {
  DeviceBuffer x(kLarge), y(kLarge);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    Stream first = nullptr;
    ASSERT_OK(StreamCreate(&first));
    TestStream second;
    Event event = nullptr;
    ASSERT_OK(EventCreate(&event));
    Slow(first, x.get());
    ASSERT_OK(EventRecord(event, first));
    ASSERT_OK(StreamWaitEvent(second, event, 0));
    EXPECT_OK(EventDestroy(event));
    EXPECT_OK(StreamDestroy(first));
    ASSERT_OK(MemcpyAsync(y.get(), x.get(), kLarge, kMemcpyDeviceToDevice, second));
    ASSERT_OK(StreamSynchronize(second));
    EXPECT_TRUE(AllEqual(y.Read(), kFills));
  }
}

TEST_P(OrderingSemantics, ChainsThroughManyStreams) {
  constexpr int kStreams = 16;
  constexpr std::size_t kSize = 1 << 16;
  std::vector<std::unique_ptr<TestStream>> streams;
  std::vector<std::unique_ptr<TestEvent>> events;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(std::make_unique<TestStream>());
    events.push_back(std::make_unique<TestEvent>(kEventDisableTiming));
    buffers.push_back(std::make_unique<DeviceBuffer>(kSize));
  }
  for (int round = 1; round <= 20; ++round) {
    ASSERT_OK(MemsetAsync(buffers[0]->get(), round, kSize, *streams[0]));
    for (std::size_t i = 0; i + 1 < kStreams; ++i) {
      ASSERT_OK(EventRecord(*events[i], *streams[i]));
      ASSERT_OK(StreamWaitEvent(*streams[i + 1], *events[i], 0));
      ASSERT_OK(MemcpyAsync(buffers[i + 1]->get(), buffers[i]->get(), kSize, kMemcpyDeviceToDevice,
                            *streams[i + 1]));
    }
    // The first stream may overwrite its buffer only after the last has read the chain.
    ASSERT_OK(EventRecord(*events[kStreams - 1], *streams[kStreams - 1]));
    ASSERT_OK(StreamWaitEvent(*streams[0], *events[kStreams - 1], 0));
  }
  EXPECT_TRUE(AllEqual(buffers[kStreams - 1]->Read(), 20));
}

INSTANTIATE_SEMANTICS(OrderingSemantics);

}  // namespace
}  // namespace infini::rt::runtime
