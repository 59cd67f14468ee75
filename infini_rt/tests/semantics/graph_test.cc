#include <functional>
#include <thread>

#include "semantics/fixture.h"

namespace infini::rt::runtime {
namespace {

class GraphSemantics : public Semantics {
 protected:
  void SetUp() override {
    Semantics::SetUp();
    REQUIRE_FEATURE(kFeatureGraph);
  }

  /// Captures what `body` enqueues on `stream`.
  static Graph Capture(Stream stream, const std::function<void()>& body) {
    EXPECT_OK(StreamBeginCapture(stream, kStreamCaptureModeRelaxed));
    body();
    Graph graph = nullptr;
    EXPECT_OK(StreamEndCapture(stream, &graph));
    return graph;
  }
  static GraphExec Instantiate(Stream stream, const std::function<void()>& body) {
    Graph graph = Capture(stream, body);
    GraphExec exec = nullptr;
    EXPECT_OK(GraphInstantiate(&exec, graph));
    EXPECT_OK(GraphDestroy(graph));
    return exec;
  }

  static constexpr std::size_t kSize = 1 << 16;
};

TEST_P(GraphSemantics, NullsAreInvalidValues) {
  GraphExec exec = nullptr;
  TestStream stream;
  EXPECT_EQ(GraphInstantiate(nullptr, nullptr), kErrorInvalidValue);
  EXPECT_EQ(GraphInstantiate(&exec, nullptr), kErrorInvalidValue);
  EXPECT_EQ(GraphLaunch(nullptr, stream), kErrorInvalidValue);
  EXPECT_EQ(GraphDestroy(nullptr), kErrorInvalidValue);
  EXPECT_EQ(GraphExecDestroy(nullptr), kErrorInvalidValue);
}

TEST_P(GraphSemantics, CapturedWorkIsRecordedNotExecuted) {
  TestStream stream;
  DeviceBuffer buffer(kSize);
  ASSERT_OK(Memset(buffer.get(), 1, kSize));
  ASSERT_OK(DeviceSynchronize());
  GraphExec exec =
      Instantiate(stream, [&] { ASSERT_OK(MemsetAsync(buffer.get(), 2, kSize, stream)); });
  EXPECT_TRUE(AllEqual(buffer.Read(), 1));
  ASSERT_OK(GraphLaunch(exec, stream));
  EXPECT_TRUE(AllEqual(buffer.Read(), 2));
  EXPECT_OK(GraphExecDestroy(exec));
}

TEST_P(GraphSemantics, AddressesAreFrozenContentsAreNot) {
  TestStream stream;
  DeviceBuffer source(kSize), target(kSize);
  GraphExec exec = Instantiate(stream, [&] {
    ASSERT_OK(MemcpyAsync(target.get(), source.get(), kSize, kMemcpyDeviceToDevice, stream));
  });
  for (int value : {3, 4, 5}) {
    ASSERT_OK(MemsetAsync(source.get(), value, kSize, stream));
    ASSERT_OK(GraphLaunch(exec, stream));
    ASSERT_OK(StreamSynchronize(stream));
    EXPECT_TRUE(AllEqual(target.Read(), value));
  }
  EXPECT_OK(GraphExecDestroy(exec));
}

TEST_P(GraphSemantics, EmptyGraphIsValid) {
  TestStream stream;
  GraphExec exec = Instantiate(stream, [] {});
  EXPECT_OK(GraphLaunch(exec, stream));
  EXPECT_OK(StreamSynchronize(stream));
  EXPECT_OK(GraphExecDestroy(exec));
}

TEST_P(GraphSemantics, ExecutablesOutliveTheGraphAndAreIndependent) {
  TestStream stream;
  DeviceBuffer buffer(kSize);
  Graph graph = Capture(stream, [&] { ASSERT_OK(MemsetAsync(buffer.get(), 6, kSize, stream)); });
  GraphExec first = nullptr, second = nullptr;
  ASSERT_OK(GraphInstantiate(&first, graph));
  ASSERT_OK(GraphInstantiate(&second, graph));
  ASSERT_OK(GraphDestroy(graph));
  ASSERT_OK(GraphExecDestroy(first));
  ASSERT_OK(GraphLaunch(second, stream));
  EXPECT_TRUE(AllEqual(buffer.Read(), 6));
  EXPECT_OK(GraphExecDestroy(second));
}

TEST_P(GraphSemantics, LaunchOnTheDefaultStream) {
  TestStream stream;
  DeviceBuffer buffer(kSize);
  GraphExec exec =
      Instantiate(stream, [&] { ASSERT_OK(MemsetAsync(buffer.get(), 7, kSize, stream)); });
  ASSERT_OK(GraphLaunch(exec, nullptr));
  EXPECT_TRUE(AllEqual(buffer.Read(), 7));
  EXPECT_OK(GraphExecDestroy(exec));
}

TEST_P(GraphSemantics, LaunchIsOrderedInItsStream) {
  TestStream stream;
  DeviceBuffer buffer(kSize);
  PinnedBuffer host(kSize);
  GraphExec exec =
      Instantiate(stream, [&] { ASSERT_OK(MemsetAsync(buffer.get(), 8, kSize, stream)); });
  {
    Gate gate;
    gate.Close(stream);
    ASSERT_OK(MemsetAsync(buffer.get(), 9, kSize, stream));
    ASSERT_OK(GraphLaunch(exec, stream));
    ASSERT_OK(MemcpyAsync(host.get(), buffer.get(), kSize, kMemcpyDeviceToHost, stream));
    gate.Open();
    ASSERT_OK(StreamSynchronize(stream));
  }
  EXPECT_TRUE(AllEqual(host, 8));
  EXPECT_OK(GraphExecDestroy(exec));
}

TEST_P(GraphSemantics, ForkAndJoin) {
  TestStream origin, left, right;
  TestEvent fork, left_done, right_done;
  DeviceBuffer a(kSize), b(kSize), c(2 * kSize);
  GraphExec exec = Instantiate(origin, [&] {
    ASSERT_OK(MemsetAsync(a.get(), 1, kSize, origin));
    ASSERT_OK(EventRecord(fork, origin));
    ASSERT_OK(StreamWaitEvent(left, fork, 0));
    ASSERT_OK(StreamWaitEvent(right, fork, 0));
    ASSERT_OK(MemcpyAsync(b.get(), a.get(), kSize, kMemcpyDeviceToDevice, left));
    ASSERT_OK(MemsetAsync(c.bytes() + kSize, 2, kSize, right));
    ASSERT_OK(EventRecord(left_done, left));
    ASSERT_OK(EventRecord(right_done, right));
    ASSERT_OK(StreamWaitEvent(origin, left_done, 0));
    ASSERT_OK(StreamWaitEvent(origin, right_done, 0));
    ASSERT_OK(MemcpyAsync(c.get(), b.get(), kSize, kMemcpyDeviceToDevice, origin));
    ASSERT_OK(MemcpyAsync(a.get(), c.bytes() + kSize, kSize, kMemcpyDeviceToDevice, origin));
  });
  for (int repeat = 0; repeat < 5; ++repeat) {
    ASSERT_OK(Memset(c.get(), 0, 2 * kSize));
    ASSERT_OK(GraphLaunch(exec, origin));
    ASSERT_OK(StreamSynchronize(origin));
    auto bytes = c.Read();
    EXPECT_EQ(bytes[0], 1);
    EXPECT_EQ(bytes[kSize - 1], 1);
    EXPECT_EQ(bytes[kSize], 2);
    EXPECT_TRUE(AllEqual(a.Read(), 2));
  }
  // The forked streams are ordinary streams again.
  EXPECT_OK(StreamSynchronize(left));
  EXPECT_OK(StreamSynchronize(right));
  EXPECT_OK(GraphExecDestroy(exec));
}

TEST_P(GraphSemantics, LaunchesOfOneExecutableDoNotOverlap) {
  TestStream first, second;
  DeviceBuffer counter(kSize), copy(kSize);
  GraphExec exec = Instantiate(first, [&] {
    for (int i = 1; i <= 10; ++i) {
      ASSERT_OK(MemsetAsync(counter.get(), i, kSize, first));
      ASSERT_OK(MemcpyAsync(copy.get(), counter.get(), kSize, kMemcpyDeviceToDevice, first));
    }
  });
  for (int i = 0; i < 50; ++i)
    ASSERT_OK(GraphLaunch(exec, i % 2 == 0 ? first : second));
  ASSERT_OK(DeviceSynchronize());
  EXPECT_TRUE(AllEqual(copy.Read(), 10));
  EXPECT_OK(GraphExecDestroy(exec));
}

TEST_P(GraphSemantics, DestroyWhileRunning) {
  TestStream stream;
  DeviceBuffer buffer(kSize);
  GraphExec exec =
      Instantiate(stream, [&] { ASSERT_OK(MemsetAsync(buffer.get(), 11, kSize, stream)); });
  {
    Gate gate;
    gate.Close(stream);
    ASSERT_OK(GraphLaunch(exec, stream));
    if (GetParam() != Device::Type::kAscend) {
      EXPECT_OK(GraphExecDestroy(exec));
      exec = nullptr;
    }
    gate.Open();
  }
  EXPECT_TRUE(AllEqual(buffer.Read(), 11));
  if (exec != nullptr) {
    EXPECT_OK(GraphExecDestroy(exec));
  }
}

TEST_P(GraphSemantics, HostFunctionsAreNodes) {
  REQUIRE_FEATURE(kFeatureHostFunction);
  TestStream stream;
  DeviceBuffer device(kSize);
  PinnedBuffer host(kSize);
  struct Sum {
    PinnedBuffer* host;
    int total;
  } sum{&host, 0};
  GraphExec exec = Instantiate(stream, [&] {
    ASSERT_OK(MemcpyAsync(host.get(), device.get(), kSize, kMemcpyDeviceToHost, stream));
    ASSERT_OK(LaunchHostFunc(
        stream,
        [](void* data) {
          auto* sum = static_cast<Sum*>(data);
          sum->total += sum->host->data()[0];
        },
        &sum));
  });
  for (int value : {1, 10, 100}) {
    ASSERT_OK(MemsetAsync(device.get(), value, kSize, stream));
    ASSERT_OK(GraphLaunch(exec, stream));
  }
  ASSERT_OK(StreamSynchronize(stream));
  EXPECT_EQ(sum.total, 111);
  EXPECT_OK(GraphExecDestroy(exec));
}

TEST_P(GraphSemantics, LaunchInsideACaptureBreaksIt) {
  TestStream inner, outer;
  DeviceBuffer buffer(kSize);
  GraphExec exec =
      Instantiate(inner, [&] { ASSERT_OK(MemsetAsync(buffer.get(), 12, kSize, inner)); });
  ASSERT_OK(StreamBeginCapture(outer, kStreamCaptureModeRelaxed));
  EXPECT_EQ(GraphLaunch(exec, outer), kErrorStreamCaptureUnsupported);
  Graph graph = nullptr;
  EXPECT_EQ(StreamEndCapture(outer, &graph), kErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  GetLastError();
  EXPECT_OK(GraphExecDestroy(exec));
}

TEST_P(GraphSemantics, AllocationsInsideAGraph) {
  REQUIRE_FEATURE(kFeatureAsyncMemory);
  TestStream stream;
  PinnedBuffer host(kSize);
  GraphExec exec = Instantiate(stream, [&] {
    void* ptr = nullptr;
    ASSERT_OK(MallocAsync(&ptr, kSize, stream));
    ASSERT_OK(MemsetAsync(ptr, 13, kSize, stream));
    ASSERT_OK(MemcpyAsync(host.get(), ptr, kSize, kMemcpyDeviceToHost, stream));
    ASSERT_OK(FreeAsync(ptr, stream));
  });
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(GraphLaunch(exec, stream));
    ASSERT_OK(StreamSynchronize(stream));
    EXPECT_TRUE(AllEqual(host, 13));
  }
  EXPECT_OK(GraphExecDestroy(exec));
}

TEST_P(GraphSemantics, LiveGraphAllocationsForbidRelaunch) {
  REQUIRE_FEATURE(kFeatureAsyncMemory);
  TestStream stream;
  void* ptr = nullptr;
  GraphExec exec = Instantiate(stream, [&] {
    ASSERT_OK(MallocAsync(&ptr, kSize, stream));
    ASSERT_OK(MemsetAsync(ptr, 14, kSize, stream));
  });
  ASSERT_OK(GraphLaunch(exec, stream));
  EXPECT_EQ(GraphLaunch(exec, stream), kErrorInvalidValue);
  GetLastError();
  ASSERT_OK(FreeAsync(ptr, stream));
  EXPECT_OK(GraphLaunch(exec, stream));
  ASSERT_OK(FreeAsync(ptr, stream));
  ASSERT_OK(StreamSynchronize(stream));
  EXPECT_OK(GraphExecDestroy(exec));
}

TEST_P(GraphSemantics, ExternalWaitFollowsTheLatestRecordAtLaunch) {
  REQUIRE_FEATURE(kFeatureHostFunction);
  REQUIRE_FEATURE(kFeatureCaptureStatus);
  TestStream stream, producer;
  TestEvent event;
  DeviceBuffer source(kSize), target(kSize);
  GraphExec exec = Instantiate(stream, [&] {
    ASSERT_OK(StreamWaitEvent(stream, event, kEventWaitExternal));
    ASSERT_OK(MemcpyAsync(target.get(), source.get(), kSize, kMemcpyDeviceToDevice, stream));
  });
  {
    Gate gate;
    gate.Close(producer);
    ASSERT_OK(MemsetAsync(source.get(), 15, kSize, producer));
    ASSERT_OK(EventRecord(event, producer));
    ASSERT_OK(GraphLaunch(exec, stream));
    gate.Open();
    ASSERT_OK(StreamSynchronize(stream));
  }
  EXPECT_TRUE(AllEqual(target.Read(), 15));
  EXPECT_OK(GraphExecDestroy(exec));
}

INSTANTIATE_SEMANTICS(GraphSemantics);

}  // namespace
}  // namespace infini::rt::runtime
