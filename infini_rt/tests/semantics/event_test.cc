#include <chrono>
#include <thread>

#include "semantics/fixture.h"

namespace infini::rt::runtime {
namespace {

class EventSemantics : public Semantics {};

TEST_P(EventSemantics, BadArguments) {
  EXPECT_EQ(EventCreate(nullptr), kErrorInvalidValue);
  EXPECT_EQ(EventDestroy(nullptr), kErrorInvalidResourceHandle);
  EXPECT_EQ(EventRecord(nullptr, nullptr), kErrorInvalidResourceHandle);
  EXPECT_EQ(EventQuery(nullptr), kErrorInvalidResourceHandle);
  EXPECT_EQ(EventSynchronize(nullptr), kErrorInvalidResourceHandle);
  TestStream stream;
  EXPECT_EQ(StreamWaitEvent(stream, nullptr, 0), kErrorInvalidResourceHandle);
}

TEST_P(EventSemantics, BadFlags) {
  Event event = nullptr;
  EXPECT_EQ(EventCreateWithFlags(&event, 8), kErrorInvalidValue);
  EXPECT_EQ(EventCreateWithFlags(&event, kEventInterprocess), kErrorInvalidValue);
  TestStream stream;
  TestEvent good;
  EXPECT_EQ(StreamWaitEvent(stream, good, 2), kErrorInvalidValue);
}

TEST_P(EventSemantics, ExternalWaitNeedsACapture) {
  REQUIRE_FEATURE(kFeatureCaptureStatus);
  TestStream stream;
  TestEvent event;
  EXPECT_EQ(StreamWaitEvent(stream, event, kEventWaitExternal), kErrorIllegalState);
}

TEST_P(EventSemantics, AllFlagsWork) {
  for (unsigned int flags : {kEventDefault, kEventBlockingSync, kEventDisableTiming,
                             kEventBlockingSync | kEventDisableTiming}) {
    TestStream stream;
    TestEvent event(flags);
    DeviceBuffer buffer(1 << 20);
    ASSERT_OK(MemsetAsync(buffer.get(), 1, buffer.size(), stream));
    ASSERT_OK(EventRecord(event, stream));
    ASSERT_OK(EventSynchronize(event));
    EXPECT_OK(EventQuery(event));
  }
}

TEST_P(EventSemantics, NeverRecordedMeansNothingToWaitFor) {
  TestStream stream;
  TestEvent event;
  EXPECT_OK(EventQuery(event));
  EXPECT_OK(EventSynchronize(event));
  EXPECT_OK(StreamWaitEvent(stream, event, 0));
  EXPECT_OK(StreamSynchronize(stream));
}

TEST_P(EventSemantics, ElapsedTimeErrors) {
  TestStream stream;
  TestEvent start, end, no_timing(kEventDisableTiming);
  float ms = 0;
  EXPECT_EQ(EventElapsedTime(&ms, start, end), kErrorInvalidResourceHandle);
  ASSERT_OK(EventRecord(start, stream));
  EXPECT_EQ(EventElapsedTime(&ms, start, end), kErrorInvalidResourceHandle);
  ASSERT_OK(EventRecord(end, stream));
  ASSERT_OK(EventSynchronize(end));
  EXPECT_EQ(EventElapsedTime(nullptr, start, end), kErrorInvalidValue);
  EXPECT_EQ(EventElapsedTime(&ms, nullptr, end), kErrorInvalidResourceHandle);
  ASSERT_OK(EventRecord(no_timing, stream));
  ASSERT_OK(StreamSynchronize(stream));
  EXPECT_EQ(EventElapsedTime(&ms, no_timing, end), kErrorInvalidResourceHandle);
  EXPECT_OK(EventElapsedTime(&ms, start, end));
}

TEST_P(EventSemantics, PendingEventsAreNotReadyAndLeaveNoError) {
  TestStream stream;
  TestEvent before, after;
  ASSERT_OK(EventRecord(before, stream));
  {
    Gate gate;
    gate.Close(stream);
    ASSERT_OK(EventRecord(after, stream));
    float ms = 0;
    EXPECT_EQ(EventQuery(after), kErrorNotReady);
    EXPECT_EQ(EventElapsedTime(&ms, before, after), kErrorNotReady);
    EXPECT_OK(PeekAtLastError());
    gate.Open();
    EXPECT_OK(EventSynchronize(after));
    EXPECT_OK(EventElapsedTime(&ms, before, after));
    EXPECT_GE(ms, 0.0f);
  }
}

TEST_P(EventSemantics, ElapsedTimeHasTheSignOfTheOrder) {
  TestStream stream;
  TestEvent first, second;
  DeviceBuffer buffer(8 << 20);
  ASSERT_OK(EventRecord(first, stream));
  for (int i = 0; i < 4; ++i)
    ASSERT_OK(MemsetAsync(buffer.get(), i, buffer.size(), stream));
  ASSERT_OK(EventRecord(second, stream));
  ASSERT_OK(StreamSynchronize(stream));
  float forward = 0, backward = 0;
  ASSERT_OK(EventElapsedTime(&forward, first, second));
  ASSERT_OK(EventElapsedTime(&backward, second, first));
  EXPECT_GT(forward, 0.0f);
  EXPECT_LT(backward, 0.0f);
  EXPECT_NEAR(forward, -backward, 0.01f);
}

TEST_P(EventSemantics, ElapsedTimeMeasuresTheWorkNotTheCalls) {
  REQUIRE_FEATURE(kFeatureHostFunction);
  TestStream stream;
  TestEvent start, end;
  auto sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
  ASSERT_OK(StreamSynchronize(stream));
  ASSERT_OK(EventRecord(start, stream));
  ASSERT_OK(LaunchHostFunc(stream, sleep, nullptr));
  ASSERT_OK(EventRecord(end, stream));
  auto begin = std::chrono::steady_clock::now();
  ASSERT_OK(EventSynchronize(end));
  std::chrono::duration<float, std::milli> waited = std::chrono::steady_clock::now() - begin;
  float ms = 0;
  ASSERT_OK(EventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 30.0f);
  EXPECT_LE(ms, waited.count() + 200.0f);
}

TEST_P(EventSemantics, RecordingAgainReplacesTheRecord) {
  TestStream busy, idle;
  TestEvent event;
  Gate gate;
  if (!gate.exact()) GTEST_SKIP() << "needs a stream that stays busy";
  if (!Has(kFeatureStreamFlag)) GTEST_SKIP();
  gate.Close(busy);
  ASSERT_OK(EventRecord(event, busy));
  EXPECT_EQ(EventQuery(event), kErrorNotReady);
  ASSERT_OK(EventRecord(event, idle));
  EXPECT_OK(EventSynchronize(event));
  EXPECT_OK(EventQuery(event));
  gate.Open();
  EXPECT_OK(StreamSynchronize(busy));
  EXPECT_OK(EventQuery(event));
}

TEST_P(EventSemantics, DestroyWhilePendingReturnsAtOnce) {
  TestStream busy, waiting;
  TestEvent event;
  DeviceBuffer buffer(4096);
  PinnedBuffer host(4096);
  Gate gate;
  gate.Close(busy);
  ASSERT_OK(MemsetAsync(buffer.get(), 9, 4096, busy));
  ASSERT_OK(EventRecord(event, busy));
  ASSERT_OK(StreamWaitEvent(waiting, event, 0));
  EXPECT_OK(EventDestroy(event));
  event.Forget();
  ASSERT_OK(MemcpyAsync(host.get(), buffer.get(), 4096, kMemcpyDeviceToHost, waiting));
  gate.Open();
  EXPECT_OK(StreamSynchronize(waiting));
  EXPECT_TRUE(AllEqual(host, 9));
}

TEST_P(EventSemantics, EventAndStreamMustShareADevice) {
  int count = 0;
  ASSERT_OK(GetDeviceCount(&count));
  if (count < 2) GTEST_SKIP() << "one device";
  TestEvent event;
  ASSERT_OK(SetDevice(1));
  {
    TestStream stream;
    EXPECT_EQ(EventRecord(event, stream), kErrorInvalidResourceHandle);
  }
  ASSERT_OK(SetDevice(0));
}

INSTANTIATE_SEMANTICS(EventSemantics);

}  // namespace
}  // namespace infini::rt::runtime
