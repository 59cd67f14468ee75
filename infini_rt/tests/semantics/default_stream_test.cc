#include "semantics/fixture.h"

namespace infini::rt::runtime {
namespace {

/// The rules of the legacy default stream.
class DefaultStreamSemantics : public Semantics {};

constexpr std::size_t kSize = 4096;

TEST_P(DefaultStreamSemantics, WaitsForBlockingStreams) {
  REQUIRE_FEATURE(kFeatureStreamQuery);
  TestStream stream;
  DeviceBuffer buffer(kSize);
  PinnedBuffer host(kSize);
  {
    Gate gate;
    gate.Close(stream);
    EXPECT_EQ(StreamQuery(nullptr), kErrorNotReady);
    ASSERT_OK(MemsetAsync(buffer.get(), 1, kSize, stream));
    ASSERT_OK(MemsetAsync(buffer.get(), 2, kSize, nullptr));
    ASSERT_OK(MemcpyAsync(host.get(), buffer.get(), kSize, kMemcpyDeviceToHost, nullptr));
    gate.Open();
    ASSERT_OK(StreamSynchronize(nullptr));
    EXPECT_OK(StreamQuery(stream));
  }
  EXPECT_TRUE(AllEqual(host, 2));
}

TEST_P(DefaultStreamSemantics, BlockingStreamsWaitForIt) {
  TestStream first, second;
  DeviceBuffer buffer(kSize);
  PinnedBuffer host(kSize);
  {
    Gate gate;
    gate.Close(first);
    ASSERT_OK(MemsetAsync(buffer.get(), 3, kSize, first));
    // The default stream's fill waits for `first`, and the copy in `second` for that fill.
    ASSERT_OK(MemsetAsync(buffer.get(), 4, kSize, kStreamLegacy));
    ASSERT_OK(MemcpyAsync(host.get(), buffer.get(), kSize, kMemcpyDeviceToHost, second));
    gate.Open();
    ASSERT_OK(StreamSynchronize(second));
  }
  EXPECT_TRUE(AllEqual(host, 4));
}

TEST_P(DefaultStreamSemantics, NonBlockingStreamsAreExempt) {
  REQUIRE_FEATURE(kFeatureStreamFlag);
  TestStream stream(kStreamNonBlocking);
  DeviceBuffer buffer(kSize);
  Gate gate;
  if (!gate.exact()) GTEST_SKIP() << "needs a stream that stays busy";
  gate.Close(stream);
  EXPECT_OK(StreamQuery(nullptr));
  ASSERT_OK(MemsetAsync(buffer.get(), 5, kSize, nullptr));
  EXPECT_OK(StreamSynchronize(nullptr));
  EXPECT_EQ(StreamQuery(stream), kErrorNotReady);
  gate.Open();
  EXPECT_OK(StreamSynchronize(stream));
}

TEST_P(DefaultStreamSemantics, SynchronousCopySeesBlockingStreams) {
  TestStream stream;
  constexpr std::size_t kLarge = 8 << 20;
  DeviceBuffer buffer(kLarge);
  std::vector<std::uint8_t> host(kLarge);
  for (int i = 1; i <= 10; ++i)
    ASSERT_OK(MemsetAsync(buffer.get(), i, kLarge, stream));
  ASSERT_OK(Memcpy(host.data(), buffer.get(), kLarge, kMemcpyDeviceToHost));
  EXPECT_TRUE(AllEqual(host, 10));
}

TEST_P(DefaultStreamSemantics, EventsInItCoverBlockingStreams) {
  REQUIRE_FEATURE(kFeatureStreamQuery);
  TestStream stream;
  TestEvent event;
  {
    Gate gate;
    gate.Close(stream);
    ASSERT_OK(EventRecord(event, nullptr));
    EXPECT_EQ(EventQuery(event), kErrorNotReady);
    gate.Open();
    ASSERT_OK(EventSynchronize(event));
    EXPECT_OK(StreamQuery(stream));
  }
}

TEST_P(DefaultStreamSemantics, PerThreadStreamIsAnOrdinaryBlockingStream) {
  if (GetParam() != Device::Type::kCpu && GetParam() != Device::Type::kNvidia) {
    GTEST_SKIP() << "the handle exists on CUDA and the CPU";
  }
  DeviceBuffer buffer(kSize);
  PinnedBuffer host(kSize);
  TestEvent event;
  ASSERT_OK(MemsetAsync(buffer.get(), 6, kSize, kStreamPerThread));
  ASSERT_OK(EventRecord(event, kStreamPerThread));
  ASSERT_OK(MemcpyAsync(host.get(), buffer.get(), kSize, kMemcpyDeviceToHost, nullptr));
  ASSERT_OK(StreamSynchronize(nullptr));
  EXPECT_TRUE(AllEqual(host, 6));
  EXPECT_OK(EventQuery(event));
  EXPECT_OK(StreamSynchronize(kStreamPerThread));
}

INSTANTIATE_SEMANTICS(DefaultStreamSemantics);

}  // namespace
}  // namespace infini::rt::runtime
