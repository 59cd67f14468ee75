#include <vector>

#include "semantics/fixture.h"

namespace infini::rt::runtime {
namespace {

class StreamSemantics : public Semantics {};

TEST_P(StreamSemantics, BadArguments) {
  EXPECT_EQ(StreamCreate(nullptr), kErrorInvalidValue);
  for (Stream stream : {Stream(nullptr), kStreamLegacy, kStreamPerThread}) {
    EXPECT_EQ(StreamDestroy(stream), kErrorInvalidResourceHandle);
  }
}

TEST_P(StreamSemantics, BadFlags) {
  REQUIRE_FEATURE(kFeatureStreamFlag);
  Stream stream = nullptr;
  EXPECT_EQ(StreamCreateWithFlags(&stream, 7), kErrorInvalidValue);
  EXPECT_EQ(StreamCreateWithFlags(nullptr, kStreamNonBlocking), kErrorInvalidValue);
}

TEST_P(StreamSemantics, HandlesAreDistinct) {
  TestStream a, b;
  EXPECT_NE(Stream(a), Stream(b));
  EXPECT_NE(Stream(a), nullptr);
}

TEST_P(StreamSemantics, PriorityIsClamped) {
  REQUIRE_FEATURE(kFeatureStreamFlag);
  for (int priority : {-99, 0, 99}) {
    Stream stream = nullptr;
    ASSERT_OK(StreamCreateWithPriority(&stream, kStreamNonBlocking, priority));
    DeviceBuffer buffer(16);
    EXPECT_OK(MemsetAsync(buffer.get(), 1, 16, stream));
    EXPECT_OK(StreamSynchronize(stream));
    EXPECT_TRUE(AllEqual(buffer.Read(), 1));
    EXPECT_OK(StreamDestroy(stream));
  }
}

TEST_P(StreamSemantics, QueryWhileRunningSaysNotReadyAndLeavesNoError) {
  REQUIRE_FEATURE(kFeatureStreamQuery);
  TestStream stream;
  EXPECT_OK(StreamQuery(stream));
  {
    Gate gate;
    gate.Close(stream);
    EXPECT_EQ(StreamQuery(stream), kErrorNotReady);
    EXPECT_OK(PeekAtLastError());
    gate.Open();
    EXPECT_OK(StreamSynchronize(stream));
  }
  EXPECT_OK(StreamQuery(stream));
}

TEST_P(StreamSemantics, DestroyReturnsAtOnceAndWorkCompletes) {
  DeviceBuffer buffer(4096);
  ASSERT_OK(Memset(buffer.get(), 0, 4096));
  ASSERT_OK(DeviceSynchronize());
  Gate gate;
  Stream stream = nullptr;
  ASSERT_OK(StreamCreate(&stream));
  gate.Close(stream);
  ASSERT_OK(MemsetAsync(buffer.get(), 7, 4096, stream));
  EXPECT_OK(StreamDestroy(stream));
  gate.Open();
  EXPECT_TRUE(AllEqual(buffer.Read(), 7));
}

TEST_P(StreamSemantics, WorkOfOneStreamIsInOrder) {
  TestStream stream;
  constexpr std::size_t kSize = 1 << 20;
  DeviceBuffer a(kSize), b(kSize);
  for (int i = 0; i < 50; ++i) {
    ASSERT_OK(MemsetAsync(a.get(), i, kSize, stream));
    ASSERT_OK(MemcpyAsync(b.get(), a.get(), kSize, kMemcpyDeviceToDevice, stream));
    ASSERT_OK(MemsetAsync(a.get(), 255, kSize, stream));
  }
  ASSERT_OK(StreamSynchronize(stream));
  EXPECT_TRUE(AllEqual(b.Read(), 49));
}

TEST_P(StreamSemantics, SynchronizeWaitsForThatStreamOnly) {
  REQUIRE_FEATURE(kFeatureStreamFlag);
  TestStream busy(kStreamNonBlocking), other(kStreamNonBlocking);
  DeviceBuffer buffer(16);
  Gate gate;
  if (!gate.exact()) GTEST_SKIP() << "needs a stream that stays busy";
  gate.Close(busy);
  ASSERT_OK(MemsetAsync(buffer.get(), 1, 16, other));
  EXPECT_OK(StreamSynchronize(other));
  EXPECT_OK(StreamQuery(other));
  EXPECT_EQ(StreamQuery(busy), kErrorNotReady);
  gate.Open();
  EXPECT_OK(StreamSynchronize(busy));
}

TEST_P(StreamSemantics, HostFunctionsRunInOrder) {
  REQUIRE_FEATURE(kFeatureHostFunction);
  TestStream stream;
  std::vector<int> order;
  struct Step {
    std::vector<int>* order;
    int index;
  };
  std::vector<Step> steps;
  for (int i = 0; i < 200; ++i)
    steps.push_back({&order, i});
  for (Step& step : steps) {
    ASSERT_OK(LaunchHostFunc(
        stream,
        [](void* data) {
          auto* step = static_cast<Step*>(data);
          step->order->push_back(step->index);
        },
        &step));
  }
  ASSERT_OK(StreamSynchronize(stream));
  ASSERT_EQ(order.size(), 200u);
  for (int i = 0; i < 200; ++i)
    EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_P(StreamSemantics, HostFunctionSeesEarlierCopies) {
  REQUIRE_FEATURE(kFeatureHostFunction);
  TestStream stream;
  DeviceBuffer device(1 << 20);
  PinnedBuffer host(1 << 20);
  struct Check {
    PinnedBuffer* host;
    bool good;
  } check{&host, false};
  ASSERT_OK(MemsetAsync(device.get(), 77, device.size(), stream));
  ASSERT_OK(MemcpyAsync(host.get(), device.get(), host.size(), kMemcpyDeviceToHost, stream));
  ASSERT_OK(LaunchHostFunc(
      stream,
      [](void* data) {
        auto* check = static_cast<Check*>(data);
        check->good = AllEqual(*check->host, 77);
      },
      &check));
  ASSERT_OK(StreamSynchronize(stream));
  EXPECT_TRUE(check.good);
}

TEST_P(StreamSemantics, NullHostFunctionIsAnInvalidValue) {
  REQUIRE_FEATURE(kFeatureHostFunction);
  TestStream stream;
  EXPECT_EQ(LaunchHostFunc(stream, nullptr, nullptr), kErrorInvalidValue);
  EXPECT_EQ(GetLastError(), kErrorInvalidValue);
}

INSTANTIATE_SEMANTICS(StreamSemantics);

}  // namespace
}  // namespace infini::rt::runtime
