#include <functional>
#include <thread>

#include "semantics/fixture.h"

namespace infini::rt::runtime {
namespace {

/// What a capture forbids and what breaks it, per mode.
class CaptureSemantics : public Semantics {
 protected:
  static constexpr StreamCaptureMode kModes[] = {
      kStreamCaptureModeGlobal, kStreamCaptureModeThreadLocal, kStreamCaptureModeRelaxed};

  void SetUp() override {
    Semantics::SetUp();
    REQUIRE_FEATURE(kFeatureGraph);
  }

  /// Checks the status of a stream's capture, where the backend can be asked for it.
  static void ExpectStatus(Stream stream, StreamCaptureStatus expected) {
    if (!Supports(runtime_device_type(), kFeatureCaptureStatus)) return;
    auto status = static_cast<StreamCaptureStatus>(-1);
    EXPECT_OK(StreamIsCapturing(stream, &status));
    EXPECT_EQ(status, expected);
  }

  /// Makes a call on the capturing thread and checks its code, the status of the capture after it
  /// and what the end of the capture gives.
  static void Probe(StreamCaptureMode mode, const std::function<Error(Stream)>& call, Error code,
                    bool survives) {
    TestStream stream;
    ASSERT_OK(StreamBeginCapture(stream, mode));
    SCOPED_TRACE(testing::Message() << "mode " << mode);
    EXPECT_EQ(call(stream), code);
    ExpectStatus(stream, survives ? kStreamCaptureStatusActive : kStreamCaptureStatusInvalidated);
    GetLastError();
    Graph graph = nullptr;
    if (survives) {
      EXPECT_OK(StreamEndCapture(stream, &graph));
      EXPECT_NE(graph, nullptr);
      EXPECT_OK(GraphDestroy(graph));
    } else {
      EXPECT_EQ(StreamEndCapture(stream, &graph), kErrorStreamCaptureInvalidated);
      EXPECT_EQ(graph, nullptr);
    }
    // Either way the stream works normally afterwards.
    EXPECT_OK(StreamSynchronize(stream));
    GetLastError();
  }
};

TEST_P(CaptureSemantics, BadArguments) {
  TestStream stream;
  Graph graph = nullptr;
  EXPECT_EQ(StreamEndCapture(stream, &graph), kErrorIllegalState);
  EXPECT_EQ(StreamBeginCapture(nullptr, kStreamCaptureModeGlobal), kErrorStreamCaptureUnsupported);
  EXPECT_EQ(StreamBeginCapture(stream, static_cast<StreamCaptureMode>(9)), kErrorInvalidValue);
}

TEST_P(CaptureSemantics, StatusFollowsTheCapture) {
  REQUIRE_FEATURE(kFeatureCaptureStatus);
  TestStream stream;
  StreamCaptureStatus status = kStreamCaptureStatusActive;
  EXPECT_OK(StreamIsCapturing(stream, &status));
  EXPECT_EQ(status, kStreamCaptureStatusNone);
  ASSERT_OK(StreamBeginCapture(stream, kStreamCaptureModeRelaxed));
  EXPECT_OK(StreamIsCapturing(stream, &status));
  EXPECT_EQ(status, kStreamCaptureStatusActive);
  EXPECT_NE(StreamIsCapturing(nullptr, &status), kSuccess);
  if (GetParam() == Device::Type::kCpu || GetParam() == Device::Type::kNvidia) {
    EXPECT_EQ(GetLastError(), kErrorStreamCaptureImplicit);
  }
  Graph graph = nullptr;
  EXPECT_OK(StreamEndCapture(stream, &graph));
  EXPECT_OK(GraphDestroy(graph));
  EXPECT_OK(StreamIsCapturing(stream, &status));
  EXPECT_EQ(status, kStreamCaptureStatusNone);
}

TEST_P(CaptureSemantics, BeginTwice) {
  for (auto mode : kModes) {
    Probe(
        mode, [&](Stream s) { return StreamBeginCapture(s, mode); }, kErrorIllegalState, true);
  }
}

TEST_P(CaptureSemantics, SynchronisingBreaksIt) {
  for (auto mode : kModes) {
    Error code = kErrorStreamCaptureUnsupported;
    Probe(
        mode, [](Stream s) { return StreamSynchronize(s); }, code, false);
    if (Has(kFeatureStreamQuery)) {
      Probe(
          mode, [](Stream s) { return StreamQuery(s); }, code, false);
    }
    Probe(
        mode, [](Stream) { return DeviceSynchronize(); }, code, false);
  }
}

TEST_P(CaptureSemantics, AllocationBreaksItUnlessRelaxed) {
  for (auto mode : kModes) {
    bool relaxed = mode == kStreamCaptureModeRelaxed;
    Error code = relaxed ? kSuccess : kErrorStreamCaptureUnsupported;
    void *device = nullptr, *host = nullptr, *victim = nullptr;
    ASSERT_OK(Malloc(&victim, 64));
    Probe(
        mode, [&](Stream) { return Malloc(&device, 64); }, code, relaxed);
    Probe(
        mode, [&](Stream) { return MallocHost(&host, 64); }, code, relaxed);
    Probe(
        mode, [&](Stream) { return Free(victim); }, code, relaxed);
    if (relaxed) {
      EXPECT_OK(Free(device));
      EXPECT_OK(FreeHost(host));
    } else {
      EXPECT_OK(Free(victim));
    }
  }
}

TEST_P(CaptureSemantics, DefaultStreamBreaksIt) {
  DeviceBuffer buffer(64);
  char host[64];
  for (auto mode : kModes) {
    Error code = kErrorStreamCaptureImplicit;
    Probe(
        mode, [&](Stream) { return Memcpy(host, buffer.get(), 4, kMemcpyDeviceToHost); }, code,
        false);
    Probe(
        mode, [&](Stream) { return Memset(buffer.get(), 0, 4); }, code, false);
    Probe(
        mode, [&](Stream) { return MemsetAsync(buffer.get(), 0, 4, nullptr); }, code, false);
  }
}

TEST_P(CaptureSemantics, EventsOfTheCaptureCannotBeAsked) {
  for (auto mode : kModes) {
    TestEvent event, other;
    float ms = 0;
    Error code = kErrorCapturedEvent;
    Probe(
        mode,
        [&](Stream s) {
          EXPECT_OK(EventRecord(event, s));
          return EventQuery(event);
        },
        code, false);
    Probe(
        mode,
        [&](Stream s) {
          EXPECT_OK(EventRecord(event, s));
          return EventSynchronize(event);
        },
        code, false);
    Probe(
        mode,
        [&](Stream s) {
          EXPECT_OK(EventRecord(event, s));
          return EventElapsedTime(&ms, event, other);
        },
        code, true);
  }
}

TEST_P(CaptureSemantics, HarmlessCallsKeepIt) {
  DeviceBuffer buffer(64);
  for (auto mode : kModes) {
    std::size_t free = 0, total = 0;
    Probe(
        mode, [&](Stream s) { return MemsetAsync(buffer.get(), 0, 4, s); }, kSuccess, true);
    Probe(
        mode, [&](Stream) { return MemGetInfo(&free, &total); }, kSuccess, true);
    Probe(
        mode,
        [&](Stream) {
          Event event = nullptr;
          Error error = EventCreate(&event);
          EventDestroy(event);
          return error;
        },
        kSuccess, true);
    Probe(
        mode,
        [&](Stream) {
          Stream stream = nullptr;
          Error error = StreamCreate(&stream);
          StreamDestroy(stream);
          return error;
        },
        kSuccess, true);
  }
}

TEST_P(CaptureSemantics, AfterInvalidationEverythingSaysSo) {
  TestStream stream;
  DeviceBuffer buffer(64);
  ASSERT_OK(StreamBeginCapture(stream, kStreamCaptureModeRelaxed));
  EXPECT_EQ(StreamSynchronize(stream), kErrorStreamCaptureUnsupported);
  Error refused = MemsetAsync(buffer.get(), 1, 64, stream);
  if (GetParam() == Device::Type::kAscend) {
    EXPECT_NE(refused, kSuccess);  // ACL's code for it is not documented
  } else {
    EXPECT_EQ(refused, kErrorStreamCaptureInvalidated);
  }
  Graph graph = nullptr;
  EXPECT_EQ(StreamEndCapture(stream, &graph), kErrorStreamCaptureInvalidated);
  EXPECT_OK(MemsetAsync(buffer.get(), 2, 64, stream));
  EXPECT_OK(StreamSynchronize(stream));
  EXPECT_TRUE(AllEqual(buffer.Read(), 2));
}

TEST_P(CaptureSemantics, UnjoinedFork) {
  for (auto mode : kModes) {
    TestStream origin, fork;
    TestEvent event;
    DeviceBuffer buffer(64);
    ASSERT_OK(StreamBeginCapture(origin, mode));
    ASSERT_OK(EventRecord(event, origin));
    ASSERT_OK(StreamWaitEvent(fork, event, 0));
    ASSERT_OK(MemsetAsync(buffer.get(), 1, 64, fork));
    ExpectStatus(fork, kStreamCaptureStatusActive);
    Graph graph = nullptr;
    EXPECT_EQ(StreamEndCapture(origin, &graph), kErrorStreamCaptureUnjoined);
    EXPECT_EQ(graph, nullptr);
    EXPECT_OK(StreamSynchronize(fork));
    GetLastError();
  }
}

TEST_P(CaptureSemantics, OnlyTheOriginCanEndIt) {
  TestStream origin, fork;
  TestEvent event, join;
  DeviceBuffer buffer(64);
  ASSERT_OK(StreamBeginCapture(origin, kStreamCaptureModeRelaxed));
  ASSERT_OK(EventRecord(event, origin));
  ASSERT_OK(StreamWaitEvent(fork, event, 0));
  ASSERT_OK(MemsetAsync(buffer.get(), 1, 64, fork));
  Graph graph = nullptr;
  EXPECT_EQ(StreamEndCapture(fork, &graph), kErrorStreamCaptureUnmatched);
  GetLastError();
  EXPECT_NE(StreamEndCapture(origin, &graph), kErrorIllegalState);
  if (graph != nullptr) {
    EXPECT_OK(GraphDestroy(graph));
  }
}

TEST_P(CaptureSemantics, OnlyTheThreadThatBeganMayEndItUnlessRelaxed) {
  for (auto mode : kModes) {
    TestStream stream;
    ASSERT_OK(StreamBeginCapture(stream, mode));
    Graph graph = nullptr;
    Error code = kSuccess;
    Device::Type type = GetParam();
    Stream handle = stream;
    std::thread([&] {
      set_runtime_device_type(type);
      code = StreamEndCapture(handle, &graph);
    }).join();
    if (mode == kStreamCaptureModeRelaxed) {
      EXPECT_EQ(code, kSuccess);
    } else {
      EXPECT_EQ(code, kErrorStreamCaptureWrongThread);
      // It has ended all the same.
      EXPECT_EQ(StreamEndCapture(stream, &graph), kErrorIllegalState);
    }
    if (graph != nullptr) {
      EXPECT_OK(GraphDestroy(graph));
    }
    GetLastError();
  }
}

TEST_P(CaptureSemantics, WaitingForOutsideWorkBreaksIt) {
  TestStream stream, outside;
  TestEvent event;
  ASSERT_OK(EventRecord(event, outside));
  ASSERT_OK(StreamBeginCapture(stream, kStreamCaptureModeRelaxed));
  EXPECT_EQ(StreamWaitEvent(stream, event, 0), kErrorStreamCaptureIsolation);
  Graph graph = nullptr;
  EXPECT_EQ(StreamEndCapture(stream, &graph), kErrorStreamCaptureInvalidated);
}

TEST_P(CaptureSemantics, TwoCapturesCannotMerge) {
  TestStream first, second;
  TestEvent event;
  ASSERT_OK(StreamBeginCapture(first, kStreamCaptureModeRelaxed));
  ASSERT_OK(StreamBeginCapture(second, kStreamCaptureModeRelaxed));
  ASSERT_OK(EventRecord(event, first));
  EXPECT_EQ(StreamWaitEvent(second, event, 0), kErrorStreamCaptureMerge);
  Graph graph = nullptr;
  EXPECT_EQ(StreamEndCapture(second, &graph), kErrorStreamCaptureInvalidated);
  GetLastError();
  StreamEndCapture(first, &graph);
  if (graph != nullptr) {
    EXPECT_OK(GraphDestroy(graph));
  }
}

TEST_P(CaptureSemantics, GlobalModeBindsOtherThreadsThreadLocalDoesNot) {
  Device::Type type = GetParam();
  for (auto mode : kModes) {
    TestStream stream;
    ASSERT_OK(StreamBeginCapture(stream, mode));
    Error code = kSuccess;
    std::thread([&] {
      set_runtime_device_type(type);
      void* ptr = nullptr;
      code = Malloc(&ptr, 64);
      if (code == kSuccess) Free(ptr);
    }).join();
    EXPECT_EQ(code, mode == kStreamCaptureModeGlobal ? kErrorStreamCaptureUnsupported : kSuccess);
    Graph graph = nullptr;
    StreamEndCapture(stream, &graph);
    if (graph != nullptr) {
      EXPECT_OK(GraphDestroy(graph));
    }
    GetLastError();
  }
}

TEST_P(CaptureSemantics, DestroyingACapturingStreamEndsTheCapture) {
  for (auto mode : kModes) {
    Stream stream = nullptr;
    ASSERT_OK(StreamCreate(&stream));
    ASSERT_OK(StreamBeginCapture(stream, mode));
    EXPECT_OK(StreamDestroy(stream));
    void* ptr = nullptr;
    EXPECT_OK(Malloc(&ptr, 64));
    EXPECT_OK(Free(ptr));
  }
}

INSTANTIATE_SEMANTICS(CaptureSemantics);

}  // namespace
}  // namespace infini::rt::runtime
