// The order of work on streams, and events.

#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "infini_train/core/tensor.h"
#include "tests/runtime/runtime_test.h"

namespace infini_train::test {
namespace {

constexpr std::size_t kLarge = std::size_t{4} << 20;

class RuntimeStreamsTest : public RuntimeTest {
 protected:
  RuntimeStreamsTest() : guard_(device()) {}

  static void Copy(const Memory& to, const Memory& from, StreamHandle stream) {
    impl().CopyAsync(to.get(), from.get(), from.bytes(), CopyKind::kDeviceToDevice, stream);
  }

  const DeviceGuard guard_;
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(RuntimeStreamsTest);

TEST_P(RuntimeStreamsTest, StreamsAreApartFromEachOtherAndTheDefault) {
  const Stream first;
  const Stream second;
  EXPECT_NE(first.get(), nullptr);
  EXPECT_NE(second.get(), nullptr);
  EXPECT_NE(first.get(), second.get());
}

TEST_P(RuntimeStreamsTest, WorkOnAStreamIsDoneInOrder) {
  const Stream own;
  for (const StreamHandle stream : {StreamHandle{nullptr}, own.get()}) {
    const Memory x(kLarge);
    std::vector<std::unique_ptr<Memory>> seen;
    for (int i = 0; i < 8; ++i) {
      seen.push_back(std::make_unique<Memory>(kLarge));
      impl().FillBytesAsync(x.get(), i, kLarge, stream);
      Copy(*seen.back(), x, stream);
    }
    for (std::size_t i = 0; i < seen.size(); ++i) {
      ASSERT_TRUE(seen[i]->Read(stream) == Bytes(kLarge, static_cast<std::uint8_t>(i)))
          << "copy " << i;
    }
  }
}

TEST_P(RuntimeStreamsTest, AnEventOrdersTwoStreams) {
  const Stream producer;
  const Stream consumer;
  const Event produced;
  const Event consumed;
  const Memory x(kLarge);
  const Memory y(kLarge);
  for (int round = 1; round <= 5; ++round) {
    FillSlowly(x, round, producer.get());
    impl().RecordEvent(produced.get(), producer.get());
    impl().StreamWaitEvent(consumer.get(), produced.get());
    Copy(y, x, consumer.get());
    impl().RecordEvent(consumed.get(), consumer.get());
    // The next round overwrites x only after it was read.
    impl().StreamWaitEvent(producer.get(), consumed.get());
    FillSlowly(x, 200, producer.get());
    ASSERT_TRUE(y.Read(consumer.get()) == Bytes(kLarge, static_cast<std::uint8_t>(round)));
  }
  impl().SynchronizeStream(producer.get());
}

TEST_P(RuntimeStreamsTest, ManyStreamsMeetInOne) {
  constexpr int kStreams = 16;
  const Memory all(kStreams * kLarge / 8);
  const Stream last;
  std::vector<std::unique_ptr<Stream>> streams;
  const Event done;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(std::make_unique<Stream>());
    for (int value : {i + 100, i})
      impl().FillBytesAsync(all.get() + i * (kLarge / 8), value, kLarge / 8, streams.back()->get());
    // One event for all: a wait is for the record before it.
    impl().RecordEvent(done.get(), streams.back()->get());
    impl().StreamWaitEvent(last.get(), done.get());
  }
  const Bytes content = all.Read(last.get());
  for (int i = 0; i < kStreams; ++i) {
    EXPECT_EQ(content[static_cast<std::size_t>(i) * kLarge / 8], i);
    EXPECT_EQ(content[static_cast<std::size_t>(i + 1) * kLarge / 8 - 1], i);
  }
}

TEST_P(RuntimeStreamsTest, SynchronizingTheDeviceWaitsForAllStreams) {
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Memory>> blocks;
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i < 4; ++i) {
    streams.push_back(std::make_unique<Stream>());
    blocks.push_back(std::make_unique<Memory>(kLarge));
    events.push_back(std::make_unique<Event>());
    FillSlowly(*blocks.back(), i, streams.back()->get());
    impl().RecordEvent(events.back()->get(), streams.back()->get());
  }
  impl().SynchronizeDevice();
  for (int i = 0; i < 4; ++i) {
    const auto k = static_cast<std::size_t>(i);
    EXPECT_TRUE(impl().QueryEvent(events[k]->get()));
    EXPECT_TRUE(blocks[k]->Read() == Bytes(kLarge, static_cast<std::uint8_t>(i)));
  }
}

TEST_P(RuntimeStreamsTest, AnEventThatWasNeverRecordedHoldsNothingUp) {
  const Event event;
  const Stream stream;
  EXPECT_TRUE(impl().QueryEvent(event.get()));
  impl().SynchronizeEvent(event.get());
  impl().StreamWaitEvent(stream.get(), event.get());
  const Memory memory(Pattern(1000, 1));
  impl().FillBytesAsync(memory.get(), 9, memory.bytes(), stream.get());
  EXPECT_EQ(memory.Read(stream.get()), Bytes(1000, 9));
}

TEST_P(RuntimeStreamsTest, AnEventIsDoneWhenTheWorkBeforeItIs) {
  const Stream stream;
  const Event event;
  const Memory memory(kLarge);
  for (int value : {3, 4, 5}) {  // Recorded again: the last record counts.
    FillSlowly(memory, value, stream.get());
    impl().RecordEvent(event.get(), stream.get());
    impl().SynchronizeEvent(event.get());
    EXPECT_TRUE(impl().QueryEvent(event.get()));
    const Stream other;  // Not ordered with the first but by the host.
    EXPECT_TRUE(memory.Read(other.get()) == Bytes(kLarge, static_cast<std::uint8_t>(value)));
  }
  FillSlowly(memory, 6, stream.get());
  impl().RecordEvent(event.get(), stream.get());
  while (!impl().QueryEvent(event.get()))
    std::this_thread::yield();
  const Stream other;
  EXPECT_TRUE(memory.Read(other.get()) == Bytes(kLarge, 6));
}

TEST_P(RuntimeStreamsTest, TimeElapses) {
  const Stream stream;
  const Event start;
  const Event middle;
  const Event end;
  const Memory memory(kLarge);
  impl().RecordEvent(start.get(), stream.get());
  FillSlowly(memory, 1, stream.get());
  impl().RecordEvent(middle.get(), stream.get());
  FillSlowly(memory, 2, stream.get());
  impl().RecordEvent(end.get(), stream.get());
  impl().SynchronizeEvent(end.get());
  const float first = impl().ElapsedMilliseconds(start.get(), middle.get());
  const float second = impl().ElapsedMilliseconds(middle.get(), end.get());
  const float both = impl().ElapsedMilliseconds(start.get(), end.get());
  EXPECT_GT(first, 0.0f);
  EXPECT_GT(second, 0.0f);
  EXPECT_LT(both, 60'000.0f);
  // Timers tick in up to half a microsecond.
  EXPECT_NEAR(first + second, both, 2e-3f + 1e-3f * both);
}

TEST_P(RuntimeStreamsTest, NoTimeElapsesToAnEventThatWasNeverRecorded) {
  const Event recorded;
  const Event fresh;
  impl().RecordEvent(recorded.get(), nullptr);
  impl().SynchronizeEvent(recorded.get());
  EXPECT_THROW(impl().ElapsedMilliseconds(recorded.get(), fresh.get()), std::exception);
  EXPECT_THROW(impl().ElapsedMilliseconds(fresh.get(), recorded.get()), std::exception);
  EXPECT_EQ(impl().ElapsedMilliseconds(recorded.get(), recorded.get()), 0.0f);
}

TEST_P(RuntimeStreamsTest, AnyPriorityGivesAStreamThatWorks) {
  for (const int priority : {-1000, -1, 0, 1, 1000}) {
    const Stream stream(priority);
    const Memory memory(Pattern(5000, 2));
    impl().FillBytesAsync(memory.get(), 7, memory.bytes(), stream.get());
    EXPECT_EQ(memory.Read(stream.get()), Bytes(5000, 7)) << priority;
  }
}

TEST_P(RuntimeStreamsTest, DestroyedStreamsAndEventsFinishTheirWork) {
  const Memory memory(kLarge);
  const Memory copy(kLarge);
  {
    const Stream producer;
    const Stream consumer;
    const Event event;
    FillSlowly(memory, 8, producer.get());
    impl().RecordEvent(event.get(), producer.get());
    impl().StreamWaitEvent(consumer.get(), event.get());
    Copy(copy, memory, consumer.get());
  }
  impl().SynchronizeDevice();
  EXPECT_TRUE(copy.Read() == Bytes(kLarge, 8));
}

TEST_P(RuntimeStreamsTest, NothingIsCapturedUnlessAsked) {
  const Stream stream;
  EXPECT_FALSE(impl().IsCapturing(stream.get()));
  EXPECT_FALSE(impl().IsCapturing(nullptr));
}

TEST_P(RuntimeStreamsTest, AGuardChoosesTheStreamOfAThread) {
  const Stream first;
  const Stream second;
  EXPECT_EQ(CurrentStream(device()), nullptr);
  {
    const StreamGuard outer(device(), first.get());
    EXPECT_EQ(CurrentStream(device()), first.get());
    {
      const StreamGuard inner(device(), second.get());
      EXPECT_EQ(CurrentStream(device()), second.get());
      std::thread([] { EXPECT_EQ(CurrentStream(device()), nullptr); }).join();
      // Tensors copy on the current stream, in order with what was issued there.
      const Tensor x = Tensor::Empty({1000}, DataType::kUInt8, device());
      impl().FillBytesAsync(x.raw_data(), 5, x.nbytes(), second.get());
      EXPECT_EQ(x.ToVector<std::uint8_t>(), std::vector<std::uint8_t>(1000, 5));
    }
    EXPECT_EQ(CurrentStream(device()), first.get());
    Synchronize(device());
  }
  EXPECT_EQ(CurrentStream(device()), nullptr);
}

}  // namespace
}  // namespace infini_train::test
