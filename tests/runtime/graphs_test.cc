// Work captured into graphs: what a replay does, and what becomes of its memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/graph.h"
#include "infini_train/core/generator.h"
#include "infini_train/core/tensor.h"
#include "tests/common/errors.h"
#include "tests/runtime/runtime_test.h"

namespace infini_train::test {
namespace {

constexpr std::int64_t kBytes = std::int64_t{3} << 20;

class RuntimeGraphsTest : public RuntimeTest {
 protected:
  RuntimeGraphsTest() : guard_(device()) {}

  void SetUp() override {
    if (!DeviceGraph::IsSupported(device())) GTEST_SKIP() << "the device has no graphs";
  }

  static Tensor Empty(std::int64_t bytes = kBytes) {
    return Tensor::Empty({bytes}, DataType::kUInt8, device());
  }
  static Tensor Filled(int value, std::int64_t bytes = kBytes) {
    Tensor x = Empty(bytes);
    Fill(x, value);
    return x;
  }
  static void Fill(const Tensor& x, int value) {
    impl().FillBytesAsync(x.raw_data(), value, x.nbytes(), CurrentStream(device()));
  }
  static void Copy(const Tensor& to, const Tensor& from) {
    impl().CopyAsync(to.raw_data(), from.raw_data(), to.nbytes(), CopyKind::kDeviceToDevice,
                     CurrentStream(device()));
  }
  /// Whether all bytes have the value, after the work on the current stream.
  static bool Holds(const Tensor& x, int value) {
    return x.ToVector<std::uint8_t>() == Bytes(x.nbytes(), static_cast<std::uint8_t>(value));
  }

  const DeviceGuard guard_;
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(RuntimeGraphsTest);

class RuntimeGraphSupportTest : public RuntimeTest {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(RuntimeGraphSupportTest);

TEST_P(RuntimeGraphSupportTest, WithoutItWorkIsRefused) {
  if (DeviceGraph::IsSupported(device())) GTEST_SKIP() << "the device has graphs";
  bool called = false;
  EXPECT_ERROR(DeviceGraph(device(), [&] { called = true; }), "this kind of device has no graphs");
  EXPECT_FALSE(called);
}

TEST_P(RuntimeGraphsTest, WorkIsDoneByLaunchesAndNotByTheCapture) {
  const Tensor in = Filled(1);
  const Tensor out = Filled(2);
  int calls = 0;
  DeviceGraph graph(device(), [&] {
    EXPECT_EQ(DeviceGraph::Capturing(), device());
    const Tensor between = Empty();
    Copy(between, in);
    Fill(between.AsStrided({10}, {1}, 0), 9);
    Copy(out, between);
    ++calls;
  });
  EXPECT_EQ(DeviceGraph::Capturing(), std::nullopt);
  EXPECT_EQ(graph.device(), device());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(Holds(out, 2)) << "the capture ran the work";
  for (const int value : {5, 6, 7}) {
    Fill(in, value);  // In order before the launch, and the next one after it.
    graph.Launch();
    Fill(in, 0);
    Bytes expected(kBytes, static_cast<std::uint8_t>(value));
    std::fill_n(expected.begin(), 10, std::uint8_t{9});
    EXPECT_TRUE(out.ToVector<std::uint8_t>() == expected) << value;
  }
  EXPECT_EQ(calls, 1);
}

TEST_P(RuntimeGraphsTest, ManyLaunchesMayBeUnderWay) {
  const Tensor in = Filled(0);
  const Tensor out = Empty(200 * 1024);
  const Tensor last = in.AsStrided({1024}, {1}, 0);
  // Each launch moves the content on by one row.
  DeviceGraph graph(device(), [&] {
    const Tensor shifted = Empty(199 * 1024);
    Copy(shifted, out.AsStrided({199 * 1024}, {1}, 0));
    Copy(out.AsStrided({199 * 1024}, {1}, 1024), shifted);
    Copy(out.AsStrided({1024}, {1}, 0), last);
  });
  for (int i = 0; i < 200; ++i) {
    Fill(last, i);
    graph.Launch();
  }
  const std::vector<std::uint8_t> rows = out.ToVector<std::uint8_t>();
  for (std::size_t i = 0; i < 200; ++i)
    ASSERT_EQ(rows[i * 1024 + 1023], 199 - i);
}

TEST_P(RuntimeGraphsTest, LaunchesOnDifferentStreamsFollowEachOther) {
  const Tensor x = Filled(0);
  const Tensor y = Filled(0);
  DeviceGraph graph(device(), [&] {
    const Tensor between = Empty();
    for (int i = 0; i < 10; ++i)
      Copy(between, x);
    Copy(y, between);
    Fill(x, 50);
  });
  const Stream first;
  const Stream second;
  impl().SynchronizeDevice();
  {
    const StreamGuard guard(device(), first.get());
    Fill(x, 7);
    graph.Launch();
  }
  const StreamGuard guard(device(), second.get());
  graph.Launch();
  EXPECT_TRUE(Holds(y, 50)) << "the second launch overtook the first";
}

TEST_P(RuntimeGraphsTest, ItsMemoryIsItsOwn) {
  const std::size_t before = allocator::Stats(device()).private_reserved;
  const Tensor in = Filled(0);
  Tensor left;
  std::optional<DeviceGraph> graph(std::in_place, device(), [&] {
    const Tensor between = Empty();
    Copy(between, in);
    left = Empty();
    Copy(left, between);
  });
  EXPECT_GE(allocator::Stats(device()).private_reserved, before + 2 * kBytes);
  for (int value = 1; value < 4; ++value) {
    // Whatever others do with memory between the launches.
    if (value == 2) allocator::EmptyCache(device());
    std::vector<Tensor> others;
    for (int i = 0; i < 12; ++i)
      others.push_back(Filled(100 + i));
    Fill(in, value);
    graph->Launch();
    EXPECT_TRUE(Holds(left, value));
    for (int i = 0; i < 12; ++i)
      EXPECT_TRUE(Holds(others[static_cast<std::size_t>(i)], 100 + i)) << "block " << i;
  }
  const void* address = left.raw_data();
  left = Tensor();  // A replay still writes there.
  for (int i = 0; i < 12; ++i)
    EXPECT_NE(Empty().raw_data(), address);
  allocator::EmptyCache(device());
  graph->Launch();
  impl().SynchronizeDevice();
  graph.reset();
  EXPECT_EQ(allocator::Stats(device()).private_reserved, before);
}

TEST_P(RuntimeGraphsTest, TheEndGivesItsMemoryBack) {
  allocator::EmptyCache(device());
  const MemoryStats before = allocator::Stats(device());
  Tensor left;
  {
    DeviceGraph graph(device(), [&] {
      std::vector<Tensor> blocks;
      for (const std::int64_t bytes : {std::int64_t{100}, kBytes, 10 * kBytes})
        blocks.push_back(Filled(1, bytes));
      left = Filled(3, 40 * kBytes);
    });
    EXPECT_GE(allocator::Stats(device()).reserved, before.reserved + 51 * kBytes);
    graph.Launch();
  }
  EXPECT_EQ(allocator::Stats(device()).reserved, before.reserved + 40 * kBytes);
  EXPECT_EQ(allocator::Stats(device()).allocated, before.allocated + 40 * kBytes);
  EXPECT_TRUE(Holds(left, 3)) << "a tensor outlives the graph with its last values";
  const void* address = left.raw_data();
  left = Tensor();
  const Tensor again = Empty(40 * kBytes);
  EXPECT_EQ(again.raw_data(), address) << "what tensors used becomes ordinary memory";
}

TEST_P(RuntimeGraphsTest, WhatTheBodyFreesItMayUseAgain) {
  Tensor outside = Filled(4);
  const void* address = outside.raw_data();
  const Tensor out = Empty();
  DeviceGraph graph(device(), [&] {
    Copy(out, outside);
    const void* first = Empty().raw_data();
    const Tensor second = Empty();
    EXPECT_EQ(second.raw_data(), first);
    Fill(second, 77);
    outside = Tensor();
    EXPECT_NE(Empty().raw_data(), address) << "it is read by an earlier copy";
  });
  for (int i = 0; i < 8; ++i) {
    const Tensor other = Filled(90);
    EXPECT_NE(other.raw_data(), address);
  }
  graph.Launch();
  EXPECT_TRUE(Holds(out, 4));
}

TEST_P(RuntimeGraphsTest, BranchesOnOtherStreamsArePartOfIt) {
  const Tensor in = Filled(0);
  const Tensor out = Empty();
  const Stream branch;
  const Event forked;
  const Event joined;
  DeviceGraph graph(device(), [&] {
    const StreamHandle main = CurrentStream(device());
    Tensor mine = Empty();
    Copy(mine, in);
    impl().RecordEvent(forked.get(), main);
    impl().StreamWaitEvent(branch.get(), forked.get());
    {
      const StreamGuard guard(device(), branch.get());
      const Tensor own = Empty();
      Copy(own, mine);
      Copy(out, own);
      allocator::RecordStream(device(), mine.raw_data(), branch.get());
    }
    const void* used = mine.raw_data();
    mine = Tensor();  // The branch may still read it: nobody else has it.
    const Tensor next = Empty();
    EXPECT_NE(next.raw_data(), used);
    Fill(next, 99);
    impl().RecordEvent(joined.get(), branch.get());
    impl().StreamWaitEvent(main, joined.get());
  });
  for (const int value : {3, 4}) {
    Fill(in, value);
    graph.Launch();
    EXPECT_TRUE(Holds(out, value));
  }
}

TEST_P(RuntimeGraphsTest, TwoLiveSideBySide) {
  const Tensor a = Filled(0);
  const Tensor b = Filled(0);
  const auto record = [](const Tensor& x, int value) {
    return DeviceGraph(device(), [&] {
      const Tensor between = Filled(value);
      Copy(x, between);
    });
  };
  DeviceGraph first = record(a, 1);
  std::optional<DeviceGraph> second(record(b, 2));
  second->Launch();
  first.Launch();
  EXPECT_TRUE(Holds(a, 1));
  EXPECT_TRUE(Holds(b, 2));
  second.reset();
  Fill(a, 0);
  DeviceGraph moved = std::move(first);
  moved.Launch();
  EXPECT_TRUE(Holds(a, 1));
  moved = record(a, 3);
  moved.Launch();
  EXPECT_TRUE(Holds(a, 3));
}

TEST_P(RuntimeGraphsTest, AFailureLeavesEverythingUsable) {
  const MemoryStats before = allocator::Stats(device());
  const Generator::State random = DefaultGenerator().state();
  const Tensor out = Filled(1);
  const auto capture = [&](auto last_act) {
    return DeviceGraph(device(), [=] {
      const Tensor between = Filled(5);
      Copy(out, between);
      DefaultGenerator().Next();
      last_act();
    });
  };
  const auto expect_usable = [&] {
    EXPECT_EQ(CurrentStream(device()), nullptr);
    EXPECT_EQ(DeviceGraph::Capturing(), std::nullopt);
    EXPECT_EQ(DefaultGenerator().state(), random);
    EXPECT_EQ(allocator::Stats(device()).private_reserved, before.private_reserved);
    EXPECT_TRUE(Holds(out, 1));
    DeviceGraph good(device(), [&] { Fill(out, 8); });
    good.Launch();
    EXPECT_TRUE(Holds(out, 8));
    Fill(out, 1);
  };
  EXPECT_ERROR(capture([] { throw std::runtime_error("a reason"); }),
               "work of " + device().ToString() + " could not be captured into a graph: a reason");
  expect_usable();
  EXPECT_ERROR(capture([&] { out.ToVector<std::uint8_t>(); }), " failed: ");
  expect_usable();
  EXPECT_ERROR(capture([&] { out.CopyFromHost(Bytes(kBytes).data(), kBytes); }), " failed: ");
  expect_usable();
  EXPECT_ERROR(capture([&] { capture([] {}); }), "is capturing already");
  expect_usable();
  {
    DeviceGraph other(device(), [&] { Fill(out, 1); });
    EXPECT_ERROR(capture([&] { other.Launch(); }), "cannot be launched while");
  }
  expect_usable();
  EXPECT_ERROR(capture([&] { ManualSeed(random.seed + 1); }), "changes the seed");
  expect_usable();
  const std::size_t total = impl().Properties(device().index()).total_memory;
  EXPECT_ERROR(capture([&] { Empty(static_cast<std::int64_t>(2 * total)); }), "out of memory");
  expect_usable();
}

TEST_P(RuntimeGraphsTest, AnotherSeedIsRefused) {
  const Generator::State before = DefaultGenerator().state();
  const Tensor x = Filled(1);
  DeviceGraph graph(device(), [&] { Fill(x, 2); });
  ManualSeed(before.seed + 1);
  EXPECT_ERROR(graph.Launch(), "capture it again");
  DefaultGenerator().set_state(before);
  graph.Launch();
  EXPECT_TRUE(Holds(x, 2));
}

TEST_P(RuntimeGraphsTest, ThreadsCaptureAndLaunchAtTheSameTime) {
  constexpr std::size_t kThreads = 8;
  std::vector<std::thread> threads;
  std::vector<char> good(kThreads, 0);
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const DeviceGuard guard(device());
      const Stream stream;
      const StreamGuard stream_guard(device(), stream.get());
      bool all = true;
      for (int round = 0; round < 10; ++round) {
        const int value = static_cast<int>(i) * 10 + round;
        const Tensor x = Filled(0);
        DeviceGraph graph(device(), [&] {
          const Tensor between = Filled(value);
          Copy(x, between);
        });
        for (int launch = 0; launch < 3; ++launch)
          graph.Launch();
        all = all && Holds(x, value);
      }
      good[i] = all;
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(good, std::vector<char>(kThreads, 1));
}

}  // namespace
}  // namespace infini_train::test
