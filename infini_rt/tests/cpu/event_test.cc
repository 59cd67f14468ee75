#include <infini/rt.h>
#include <infini/rt/cpu/runtime.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include <gtest/gtest.h>

namespace infini::rt::runtime {
namespace {

using Cpu = Runtime<Device::Type::kCpu>;
using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

/// What functions in the streams saw on the clock.
struct Span {
  Microseconds work;
  Clock::time_point begin, end;
};

void Begin(void* data) {
  auto* span = static_cast<Span*>(data);
  span->begin = Clock::now();
  while (Clock::now() - span->begin < span->work) {
  }
}

void End(void* data) {
  static_cast<Span*>(data)->end = Clock::now();
}

/// Puts a span between two events, which so enclose it, and returns by how much they are further
/// apart.
double ExcessMicroseconds(Stream first, Stream second, Microseconds work) {
  Event start = nullptr, ready = nullptr, end = nullptr;
  for (Event* event : {&start, &ready, &end})
    EXPECT_EQ(Cpu::EventCreate(event), kSuccess);
  Span span{work, {}, {}};
  EXPECT_EQ(Cpu::EventRecord(start, first), kSuccess);
  EXPECT_EQ(Cpu::LaunchHostFunc(first, Begin, &span), kSuccess);
  EXPECT_EQ(Cpu::EventRecord(ready, first), kSuccess);
  EXPECT_EQ(Cpu::StreamWaitEvent(second, ready, 0), kSuccess);
  EXPECT_EQ(Cpu::LaunchHostFunc(second, End, &span), kSuccess);
  EXPECT_EQ(Cpu::EventRecord(end, second), kSuccess);
  EXPECT_EQ(Cpu::EventSynchronize(end), kSuccess);
  float ms = 0;
  EXPECT_EQ(Cpu::EventElapsedTime(&ms, start, end), kSuccess);
  for (Event event : {start, ready, end})
    EXPECT_EQ(Cpu::EventDestroy(event), kSuccess);
  return static_cast<double>(ms) * 1000 - Microseconds(span.end - span.begin).count();
}

TEST(CpuEvent, ElapsedTimeIsRightToTenMicroseconds) {
  Stream streams[2] = {};
  for (Stream& stream : streams)
    ASSERT_EQ(Cpu::StreamCreateWithFlags(&stream, kStreamNonBlocking), kSuccess);
  for (Stream second : streams) {
    for (Microseconds work : {Microseconds(0), Microseconds(300), Microseconds(4000)}) {
      // Other programs may take the processor between a function and its event, but not always.
      double best = std::numeric_limits<double>::infinity();
      for (int i = 0; i < 50; ++i) {
        double excess = ExcessMicroseconds(streams[0], second, work);
        EXPECT_GT(excess, -0.1) << "of " << work.count() << " us";
        best = std::min(best, excess);
      }
      EXPECT_LE(best, 10.0) << "of " << work.count() << " us";
    }
  }
  for (Stream stream : streams)
    EXPECT_EQ(Cpu::StreamDestroy(stream), kSuccess);
}

}  // namespace
}  // namespace infini::rt::runtime
