// Large blocks from memory that is mapped into reserved addresses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "infini_train/core/device/allocator.h"
#include "infini_train/core/error.h"
#include "tests/core/child_process.h"
#include "tests/core/mock_provider.h"

namespace infini_train {
namespace {

using allocator::Allocate;
using allocator::EmptyCache;
using allocator::Free;
using allocator::PrivateMemory;
using allocator::RecordStream;
using allocator::Stats;
using test::InChildProcess;
using test::MockRuntime;
using test::MockStream;

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kGranularity = 4 * kMiB;
const Device kMock(DeviceType::kPrivateUse1, 0);

/// Each test has an allocator of its own, on a device that maps memory.
template <typename Body>
void WithMappingProvider(std::size_t capacity, Body&& body) {
  InChildProcess([&] {
    test::RegisterMockProvider();
    MockRuntime::granularity = kGranularity;
    MockRuntime::capacity = capacity;
    body();
    EXPECT_EQ(Stats(kMock).reserved, MockRuntime::used);
  });
}

std::ptrdiff_t Distance(const void* from, const void* to) {
  return static_cast<const char*>(to) - static_cast<const char*>(from);
}

int MappingCalls() {
  return MockRuntime::map_calls + MockRuntime::unmap_calls;
}

TEST(ExpandableSegments, GrowInPlace) {
  WithMappingProvider(1024 * kMiB, [] {
    void* a = Allocate(kMock, 30 * kMiB);
    EXPECT_EQ(Stats(kMock).reserved, 32 * kMiB);
    void* b = Allocate(kMock, 25 * kMiB);
    EXPECT_EQ(Distance(a, b), 30 * kMiB) << "the rest of the last piece is used";
    EXPECT_EQ(Stats(kMock).reserved, 56 * kMiB);
    EXPECT_EQ(Stats(kMock).provider_allocations, 2u);
    Free(kMock, a);
    Free(kMock, b);
    EXPECT_EQ(Allocate(kMock, 56 * kMiB), a) << "a, b and what was left did not merge";
    Free(kMock, a);
    EXPECT_EQ(Allocate(kMock, 57 * kMiB), a) << "a piece more is enough";
    EXPECT_EQ(Stats(kMock).reserved, 60 * kMiB);
    EXPECT_EQ(Stats(kMock).peak_reserved, 60 * kMiB);
    EXPECT_EQ(MockRuntime::live_allocations, 0);
    EXPECT_EQ(MockRuntime::live_ranges, 1);
  });
}

TEST(ExpandableSegments, SmallerRequestsHaveSegmentsAsEver) {
  WithMappingProvider(1024 * kMiB, [] {
    void* small = Allocate(kMock, kKiB);
    void* medium = Allocate(kMock, 8 * kMiB);
    EXPECT_EQ(MockRuntime::live_allocations, 2);
    EXPECT_EQ(MockRuntime::live_ranges, 0);
    Free(kMock, small);
    Free(kMock, medium);
  });
}

TEST(ExpandableSegments, AreOptional) {
  WithMappingProvider(1024 * kMiB, [] {
    allocator::SetExpandableSegments(false);
    void* block = Allocate(kMock, 30 * kMiB);
    EXPECT_EQ(MockRuntime::live_allocations, 1);
    allocator::SetExpandableSegments(true);
    void* mapped = Allocate(kMock, 30 * kMiB);
    EXPECT_EQ(MockRuntime::map_calls, 1);
    allocator::SetExpandableSegments(false);
    // What there is stays in use.
    Free(kMock, mapped);
    EXPECT_EQ(Allocate(kMock, 30 * kMiB), mapped);
    Free(kMock, mapped);
    Free(kMock, block);
    EmptyCache(kMock);
    EXPECT_EQ(MockRuntime::used, 0u);
  });
  WithMappingProvider(1024 * kMiB, [] {
    MockRuntime::fail_reserve = true;
    EXPECT_NE(Allocate(kMock, 30 * kMiB), nullptr) << "without addresses there are blocks";
    MockRuntime::fail_reserve = false;
    EXPECT_NE(Allocate(kMock, 30 * kMiB), nullptr);
    EXPECT_EQ(MockRuntime::live_allocations, 2) << "asked once";
  });
}

/// A step of training on sequences of some length: blocks that are kept, temporaries in between,
/// then the other way round. Returns the bytes that it needs at once.
void Step(std::size_t length, std::mt19937& random) {
  std::vector<void*> kept;
  for (int layer = 0; layer < 12; ++layer) {
    void* temporary = Allocate(kMock, length * (20 + random() % 20) * kKiB);
    kept.push_back(Allocate(kMock, length * 16 * kKiB));
    kept.push_back(Allocate(kMock, length * (10 + random() % 50) * kKiB));
    Free(kMock, temporary);
  }
  while (!kept.empty()) {
    void* gradient = Allocate(kMock, length * 30 * kKiB);
    Free(kMock, kept.back());
    kept.pop_back();
    Free(kMock, gradient);
  }
}

TEST(ExpandableSegments, VaryingLengthsDoNotFragment) {
  WithMappingProvider(16 * 1024 * kMiB, [] {
    // Each a little longer than the one before: no earlier block is of use to it as it is.
    std::mt19937 random(1);
    for (std::size_t length = 1000; length < 1400; length += 7)
      Step(length, random);
    for (int step = 0; step < 200; ++step)
      Step(600 + random() % 800, random);
    const MemoryStats stats = Stats(kMock);
    EXPECT_LE(stats.peak_reserved, stats.peak_allocated + stats.peak_allocated / 8);
    EXPECT_LT(MappingCalls(), 60);
  });
  WithMappingProvider(16 * 1024 * kMiB, [] {
    allocator::SetExpandableSegments(false);
    std::mt19937 random(1);
    for (std::size_t length = 1000; length < 1400; length += 7)
      Step(length, random);
    EXPECT_GT(Stats(kMock).peak_reserved, Stats(kMock).peak_allocated / 2 * 3)
        << "the sequence is no trouble to blocks: it proves nothing";
  });
}

TEST(ExpandableSegments, WhatIsFreedAtOnceHoldsThePeakAndOnePiece) {
  WithMappingProvider(4096 * kMiB, [] {
    std::mt19937 random(2);
    for (int round = 0; round < 200; ++round) {
      std::vector<void*> blocks;
      std::size_t left = 900 * kMiB;
      while (left > 100 * kMiB) {
        const std::size_t bytes = 9 * kMiB + random() % (80 * kMiB);
        blocks.push_back(Allocate(kMock, bytes));
        left -= bytes;
      }
      std::shuffle(blocks.begin(), blocks.end(), random);
      for (void* block : blocks)
        Free(kMock, block);
      const MemoryStats stats = Stats(kMock);
      ASSERT_LE(stats.reserved, stats.peak_allocated + kGranularity) << "round " << round;
    }
  });
}

TEST(ExpandableSegments, ASteadyStateMapsNothing) {
  WithMappingProvider(16 * 1024 * kMiB, [] {
    const auto run = [] {
      std::mt19937 random(3);
      for (int step = 0; step < 10; ++step)
        Step(500 + 100 * (step % 5), random);
    };
    run();
    run();
    const int calls = MappingCalls();
    const std::uint64_t asked = Stats(kMock).provider_allocations;
    for (int i = 0; i < 10; ++i)
      run();
    EXPECT_EQ(MappingCalls(), calls);
    EXPECT_EQ(Stats(kMock).provider_allocations, asked);
    EXPECT_EQ(MockRuntime::device_waits, 0);
    EXPECT_EQ(MockRuntime::event_calls, 0);
  });
}

TEST(ExpandableSegments, GiveBackThePiecesThatNobodyUses) {
  WithMappingProvider(1024 * kMiB, [] {
    void* a = Allocate(kMock, 30 * kMiB);
    void* b = Allocate(kMock, 9 * kMiB);  // in pieces 7 to 9
    void* c = Allocate(kMock, 41 * kMiB);
    EXPECT_EQ(Stats(kMock).reserved, 80 * kMiB);
    Free(kMock, a);
    Free(kMock, c);
    EmptyCache(kMock);
    EXPECT_GT(MockRuntime::device_waits, 0) << "their last use may still have been on its way";
    EXPECT_EQ(Stats(kMock).reserved, 12 * kMiB);
    EXPECT_EQ(Stats(kMock).allocated, 9 * kMiB);
    // The holes are filled again, as far as is needed, from where some is left.
    EXPECT_EQ(Distance(Allocate(kMock, 10 * kMiB), b), 10 * kMiB);
    EXPECT_EQ(Stats(kMock).reserved, 20 * kMiB);
    EXPECT_EQ(Allocate(kMock, 20 * kMiB), a);
    EXPECT_EQ(Stats(kMock).reserved, 40 * kMiB);
    EXPECT_EQ(Allocate(kMock, 41 * kMiB), c);
    EXPECT_EQ(Stats(kMock).reserved, 80 * kMiB);
  });
}

TEST(ExpandableSegments, GiveEverythingBackWhenNothingIsUsed) {
  WithMappingProvider(1024 * kMiB, [] {
    for (int round = 0; round < 3; ++round) {
      std::vector<void*> blocks;
      for (int i = 0; i < 10; ++i)
        blocks.push_back(Allocate(kMock, (9 + i) * kMiB));
      EXPECT_EQ(MockRuntime::live_ranges, 1);
      for (const int i : {3, 1, 4, 0, 5, 9, 2, 6, 8, 7})
        Free(kMock, blocks[i]);
      EmptyCache(kMock);
      EXPECT_EQ(Stats(kMock).reserved, 0u);
      EXPECT_EQ(MockRuntime::live_ranges, 0);
    }
  });
}

TEST(ExpandableSegments, ALackOfMemoryIsMetByTrimming) {
  WithMappingProvider(100 * kMiB, [] {
    void* a = Allocate(kMock, 40 * kMiB);
    void* b = Allocate(kMock, 12 * kMiB);
    Free(kMock, Allocate(kMock, 40 * kMiB));
    Free(kMock, a);
    // Nowhere are 84 MiB free in one piece.
    void* large = Allocate(kMock, 84 * kMiB);
    EXPECT_EQ(Stats(kMock).reserved, 96 * kMiB);
    EXPECT_ERROR(
        Allocate(kMock, 50 * kMiB),
        "out of memory on mock:0: asked for 50.0 MiB, 96.0 MiB is held in tensors (2 blocks, the "
        "largest 84.0 MiB, 12.0 MiB), 0 B is cached, 4.0 MiB of 100.0 MiB is free on the device");
    EXPECT_ERROR(Allocate(kMock, SIZE_MAX), "out of memory");
    EXPECT_ERROR(Allocate(kMock, SIZE_MAX / 4), "out of memory");
    Free(kMock, large);
    EXPECT_NE(Allocate(kMock, 50 * kMiB), nullptr) << "an error must leave the allocator usable";
    Free(kMock, b);
  });
}

TEST(ExpandableSegments, SmallRequestsTrimThemToo) {
  WithMappingProvider(100 * kMiB, [] {
    Free(kMock, Allocate(kMock, 96 * kMiB));
    EXPECT_NE(Allocate(kMock, 5 * kMiB), nullptr);
    EXPECT_EQ(MockRuntime::live_ranges, 0);
  });
}

TEST(ExpandableSegments, TheLastBytesOfADeviceNeedNoWholePiece) {
  WithMappingProvider(100 * kMiB + 2 * kMiB, [] {
    void* a = Allocate(kMock, 88 * kMiB);
    void* b = Allocate(kMock, 14 * kMiB);
    EXPECT_EQ(Stats(kMock).reserved, 102 * kMiB);
    Free(kMock, a);
    Free(kMock, b);
  });
}

TEST(ExpandableSegments, AFailureLeavesThemAsTheyWere) {
  WithMappingProvider(1024 * kMiB, [] {
    void* a = Allocate(kMock, 30 * kMiB);
    MockRuntime::fail_map = true;
    for (int i = 0; i < 3; ++i)
      EXPECT_THROW(Allocate(kMock, 100 * kMiB), std::runtime_error);
    MockRuntime::fail_map = false;
    EXPECT_EQ(Distance(a, Allocate(kMock, 100 * kMiB)), 30 * kMiB);
    EXPECT_EQ(Stats(kMock).reserved, 132 * kMiB);
  });
}

TEST(ExpandableSegments, KeepStreamsApart) {
  WithMappingProvider(200 * kMiB, [] {
    MockStream s1;
    MockStream s2;
    const StreamGuard guard(kMock, &s1);
    void* block = Allocate(kMock, 60 * kMiB);
    Free(kMock, block);
    {
      const StreamGuard other(kMock, &s2);
      EXPECT_NE(Allocate(kMock, 60 * kMiB), block) << "s1 may still use it";
    }
    EXPECT_EQ(Allocate(kMock, 50 * kMiB), block) << "later work on s1 may have it at once";
    EXPECT_EQ(MockRuntime::live_ranges, 2);
    EXPECT_EQ(MockRuntime::device_waits, 0);
    Free(kMock, block);
    // The memory of one stream serves the other, once nothing is running.
    const StreamGuard other(kMock, &s2);
    EXPECT_NE(Allocate(kMock, 120 * kMiB), nullptr);
    EXPECT_GT(MockRuntime::device_waits, 0);
  });
}

TEST(ExpandableSegments, WaitForOtherStreamsThatUsedABlock) {
  WithMappingProvider(100 * kMiB, [] {
    MockStream s2;
    void* block = Allocate(kMock, 30 * kMiB);
    ++s2.issued;
    RecordStream(kMock, block, &s2);
    Free(kMock, block);
    EXPECT_NE(Allocate(kMock, 30 * kMiB), block) << "s2 still uses it";
    EXPECT_EQ(s2.finished, 0);
    EXPECT_NE(Allocate(kMock, 60 * kMiB), nullptr);
    EXPECT_EQ(s2.finished, 1) << "the memory was taken while in use";
  });
}

TEST(ExpandableSegments, KeepDevicesApart) {
  WithMappingProvider(1024 * kMiB, [] {
    const Device other(DeviceType::kPrivateUse1, 1);
    void* a = Allocate(kMock, 30 * kMiB);
    void* b = Allocate(other, 30 * kMiB);
    EXPECT_EQ(MockRuntime::current_device, 0);
    EXPECT_EQ(MockRuntime::live_ranges, 2);
    Free(kMock, a);
    Free(other, b);
    EXPECT_EQ(Allocate(other, 30 * kMiB), b);
    Free(other, b);
    EmptyCache(other);
    EXPECT_EQ(Stats(other).reserved, 0u);
    EXPECT_EQ(Stats(kMock).reserved, 32 * kMiB);
  });
}

TEST(ExpandableSegments, KeepPeaks) {
  WithMappingProvider(1024 * kMiB, [] {
    void* a = Allocate(kMock, 30 * kMiB);
    Free(kMock, Allocate(kMock, 70 * kMiB));
    EmptyCache(kMock);
    EXPECT_EQ(Stats(kMock).reserved, 32 * kMiB);
    EXPECT_EQ(Stats(kMock).peak_reserved, 100 * kMiB);
    EXPECT_EQ(Stats(kMock).peak_allocated, 100 * kMiB);
    allocator::ResetPeakStats(kMock);
    EXPECT_EQ(Stats(kMock).peak_reserved, 32 * kMiB);
    EXPECT_EQ(Stats(kMock).private_reserved, 0u);
    Free(kMock, a);
  });
}

TEST(ExpandableSegments, AreNotForGraphs) {
  WithMappingProvider(100 * kMiB, [] {
    void* outside = Allocate(kMock, 24 * kMiB);
    Free(kMock, Allocate(kMock, 36 * kMiB));
    {
      PrivateMemory memory(kMock);
      const PrivateMemory::Scope scope(memory);
      const int calls = MockRuntime::map_calls;
      void* inside = Allocate(kMock, 60 * kMiB);
      EXPECT_EQ(MockRuntime::map_calls, calls);
      EXPECT_EQ(MockRuntime::live_allocations, 1);
      EXPECT_EQ(MockRuntime::device_waits, 0) << "what the default stream has is trimmed";
      EXPECT_EQ(Stats(kMock).reserved, 84 * kMiB);
      EXPECT_EQ(Stats(kMock).private_reserved, 60 * kMiB);
      Free(kMock, outside);
      Free(kMock, inside);
      EmptyCache(kMock);
      EXPECT_EQ(Stats(kMock).reserved, 84 * kMiB) << "the captured work may read it";
    }
    EmptyCache(kMock);
    EXPECT_EQ(Stats(kMock).reserved, 0u);
  });
}

TEST(ExpandableSegments, BlocksKeepTheirBytes) {
  WithMappingProvider(400 * kMiB, [] {
    std::mt19937 random(4);
    std::vector<std::pair<void*, std::size_t>> live;
    std::size_t held = 0;
    int mark = 0;
    const auto check_and_free = [&](std::size_t i) {
      const auto [pointer, bytes] = live[i];
      const std::byte first = *MockRuntime::memory.Bytes(pointer);
      for (std::size_t at = 0; at < bytes; at += 64 * kKiB)
        ASSERT_EQ(*MockRuntime::memory.Bytes(static_cast<char*>(pointer) + at), first);
      Free(kMock, pointer);
      held -= bytes;
      live[i] = live.back();
      live.pop_back();
    };
    for (int i = 0; i < 1000; ++i) {
      if (i % 200 == 0) EmptyCache(kMock);
      const std::size_t bytes = 9 * kMiB + random() % (30 * kMiB);
      while (held + bytes > 200 * kMiB)
        check_and_free(random() % live.size());
      void* pointer = Allocate(kMock, bytes);
      ++mark;
      for (std::size_t at = 0; at < bytes; at += 64 * kKiB)
        *MockRuntime::memory.Bytes(static_cast<char*>(pointer) + at) = std::byte(mark % 251);
      live.emplace_back(pointer, bytes);
      held += bytes;
    }
    while (!live.empty())
      check_and_free(0);
    EmptyCache(kMock);
    EXPECT_EQ(Stats(kMock).reserved, 0u);
  });
}

TEST(ExpandableSegments, AreSafeUnderThreads) {
  WithMappingProvider(4096 * kMiB, [] {
    std::atomic<bool> done = false;
    std::thread trimmer([&] {
      while (!done) {
        EmptyCache(kMock);
        std::this_thread::yield();
      }
    });
    std::vector<std::thread> threads;
    std::vector<MockStream> streams(4);
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const StreamGuard guard(kMock, &streams[t]);
        std::mt19937 random(t);
        std::vector<std::pair<void*, std::size_t>> live;
        for (int i = 0; i < 300; ++i) {
          const std::size_t bytes = 9 * kMiB + random() % (30 * kMiB);
          void* pointer = Allocate(kMock, bytes);
          const auto mark = std::byte(16 * t + static_cast<unsigned>(i) % 16);
          *MockRuntime::memory.Bytes(pointer) = mark;
          *MockRuntime::memory.Bytes(static_cast<char*>(pointer) + bytes - 1) = mark;
          live.emplace_back(pointer, bytes);
          if (live.size() < 8) continue;
          std::swap(live[random() % live.size()], live.back());
          const auto [other, size] = live.back();
          live.pop_back();
          EXPECT_EQ(*MockRuntime::memory.Bytes(other),
                    *MockRuntime::memory.Bytes(static_cast<char*>(other) + size - 1));
          Free(kMock, other);
        }
        for (const auto& [pointer, bytes] : live)
          Free(kMock, pointer);
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    done = true;
    trimmer.join();
    EXPECT_EQ(Stats(kMock).allocated, 0u);
    EmptyCache(kMock);
    EXPECT_EQ(Stats(kMock).reserved, 0u);
    EXPECT_EQ(MockRuntime::live_ranges, 0);
  });
}

}  // namespace
}  // namespace infini_train
