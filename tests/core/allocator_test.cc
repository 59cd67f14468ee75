#include "infini_train/core/device/allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "tests/core/child_process.h"
#include "tests/core/mock_provider.h"

namespace infini_train {
namespace {

using allocator::Allocate;
using allocator::EmptyCache;
using allocator::Free;
using allocator::RecordStream;
using allocator::Stats;
using test::InChildProcess;
using test::MockRuntime;
using test::MockStream;

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;
const Device kMock(DeviceType::kPrivateUse1, 0);

/// Each test has an allocator of its own, for the mock provider.
template <typename Body>
void WithMockProvider(Body&& body) {
  InChildProcess([&] {
    test::RegisterMockProvider();
    body();
  });
}

TEST(Allocator, ReusesFreedBlocks) {
  WithMockProvider([] {
    for (const std::size_t bytes : {std::size_t{1}, 100 * kKiB, 3 * kMiB, 30 * kMiB}) {
      void* first = Allocate(kMock, bytes);
      Free(kMock, first);
      EXPECT_EQ(Allocate(kMock, bytes), first) << bytes;
      Free(kMock, first);
    }
    EXPECT_EQ(Stats(kMock).provider_allocations, 3u) << "1 B and 100 KiB fit one segment";
    EXPECT_EQ(Stats(kMock).allocations, 8u);
  });
}

TEST(Allocator, GivesNothingForNothing) {
  WithMockProvider([] {
    EXPECT_EQ(Allocate(kMock, 0), nullptr);
    Free(kMock, nullptr);
    int foreign = 0;
    Free(kMock, &foreign);
    EXPECT_ERROR(RecordStream(kMock, &foreign, nullptr), "no block of the allocator of mock:0");
    EXPECT_EQ(MockRuntime::live_allocations, 0);
  });
}

TEST(Allocator, KeepsStatistics) {
  WithMockProvider([] {
    void* a = Allocate(kMock, 1000);
    void* b = Allocate(kMock, 3 * kMiB);
    EXPECT_EQ(Stats(kMock).allocated, 1024 + 3 * kMiB);
    EXPECT_EQ(Stats(kMock).reserved, 22 * kMiB);
    EXPECT_EQ(Stats(kMock).reserved, MockRuntime::used);
    Free(kMock, b);
    EXPECT_EQ(Stats(kMock).allocated, 1024u);
    EXPECT_EQ(Stats(kMock).peak_allocated, 1024 + 3 * kMiB);
    allocator::ResetPeakStats(kMock);
    EXPECT_EQ(Stats(kMock).peak_allocated, 1024u);
    EmptyCache(kMock);
    EXPECT_EQ(Stats(kMock).reserved, 2 * kMiB);
    EXPECT_EQ(Stats(kMock).peak_reserved, 22 * kMiB);
    Free(kMock, a);
    EmptyCache(kMock);
    EXPECT_EQ(Stats(kMock).reserved, 0u);
    EXPECT_EQ(Stats(kMock).allocated, 0u);
    EXPECT_EQ(MockRuntime::live_allocations, 0);
    EXPECT_EQ(Stats(Device(DeviceType::kPrivateUse1, 1)).allocations, 0u);
  });
}

TEST(Allocator, SplitsAndMergesBlocks) {
  WithMockProvider([] {
    // Three neighbours in one segment of 20 MiB.
    void* a = Allocate(kMock, 6 * kMiB);
    void* b = Allocate(kMock, 6 * kMiB);
    void* c = Allocate(kMock, 6 * kMiB);
    EXPECT_EQ(Stats(kMock).provider_allocations, 1u);
    EXPECT_EQ(static_cast<char*>(b) - static_cast<char*>(a), 6 * kMiB);
    Free(kMock, a);
    Free(kMock, c);
    // The hole before b does not hold 7 MiB; c and the tail after it do.
    EXPECT_EQ(Allocate(kMock, 7 * kMiB), c);
    Free(kMock, c);
    Free(kMock, b);
    EXPECT_EQ(Allocate(kMock, 8 * kMiB), a) << "a, b and c did not merge";
    Free(kMock, a);
    EXPECT_EQ(Stats(kMock).provider_allocations, 1u);
    EmptyCache(kMock);
    EXPECT_EQ(MockRuntime::live_allocations, 0);
  });
}

TEST(Allocator, TakesTheBestFit) {
  WithMockProvider([] {
    std::vector<void*> blocks;
    for (const std::size_t mebibytes : {90, 50, 70, 51})
      blocks.push_back(Allocate(kMock, mebibytes * kMiB));
    for (void* block : blocks)
      Free(kMock, block);
    EXPECT_EQ(Allocate(kMock, 51 * kMiB), blocks[3]);
    EXPECT_EQ(Allocate(kMock, 49 * kMiB), blocks[1]);
    EXPECT_EQ(Allocate(kMock, 60 * kMiB), blocks[2]);
    EXPECT_EQ(Allocate(kMock, 88 * kMiB), blocks[0]);
  });
}

TEST(Allocator, MergesSmallBlocksBeforeItGrows) {
  WithMockProvider([] {
    std::vector<void*> blocks;
    for (int i = 0; i < 2048; ++i)
      blocks.push_back(Allocate(kMock, kKiB));
    EXPECT_EQ(Stats(kMock).provider_allocations, 1u);
    for (void* block : blocks)
      Free(kMock, block);
    for (int i = 0; i < 8; ++i)
      EXPECT_NE(Allocate(kMock, 256 * kKiB), nullptr);
    EXPECT_EQ(Stats(kMock).provider_allocations, 1u);
  });
}

TEST(Allocator, BlocksNeverOverlap) {
  WithMockProvider([] {
    std::mt19937 random(1);
    std::vector<std::pair<void*, std::size_t>> live;
    const auto check_and_free = [&](std::size_t i) {
      auto [pointer, bytes] = live[i];
      const std::byte* content = MockRuntime::memory.Bytes(pointer);
      const std::byte mark = content[0];
      EXPECT_TRUE(std::all_of(content, content + bytes, [&](auto byte) { return byte == mark; }));
      Free(kMock, pointer);
      live[i] = live.back();
      live.pop_back();
    };
    for (int i = 0; i < 20'000; ++i) {
      if (live.size() > 100 || (!live.empty() && random() % 2 == 0)) {
        check_and_free(random() % live.size());
        continue;
      }
      const std::size_t bytes = 1 + random() % (std::size_t{1} << random() % 19);
      void* pointer = Allocate(kMock, bytes);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % 64, 0u);
      std::memset(MockRuntime::memory.Bytes(pointer), i % 251, bytes);
      live.emplace_back(pointer, bytes);
    }
    while (!live.empty())
      check_and_free(0);
    EXPECT_EQ(Stats(kMock).allocated, 0u);
    EmptyCache(kMock);
    EXPECT_EQ(Stats(kMock).reserved, 0u) << "some blocks did not merge";
  });
}

TEST(Allocator, KeepsStreamsApart) {
  WithMockProvider([] {
    MockStream s1;
    MockStream s2;
    for (const std::size_t bytes : {kKiB, kMiB, 64 * kMiB}) {
      const StreamGuard guard(kMock, &s1);
      void* block = Allocate(kMock, bytes);
      Free(kMock, block);
      {
        const StreamGuard other(kMock, &s2);
        EXPECT_NE(Allocate(kMock, bytes), block) << "s1 may still use it";
      }
      EXPECT_EQ(Allocate(kMock, bytes), block) << "later work on s1 may have it at once";
    }
    EXPECT_EQ(MockRuntime::event_calls, 0);
  });
}

TEST(Allocator, WaitsForOtherStreamsThatUsedABlock) {
  WithMockProvider([] {
    MockStream s1;
    MockStream s2;
    MockStream s3;
    const StreamGuard guard(kMock, &s1);
    for (const std::size_t bytes : {kKiB, kMiB, 64 * kMiB}) {
      void* block = Allocate(kMock, bytes);
      ++s2.issued;
      ++s3.issued;
      RecordStream(kMock, block, &s1);
      RecordStream(kMock, block, &s2);
      RecordStream(kMock, block, &s2);
      RecordStream(kMock, block, &s3);
      Free(kMock, block);
      ++s2.issued;  // Work after the last use does not hold the block up.
      void* meanwhile = Allocate(kMock, bytes);
      EXPECT_NE(meanwhile, block) << "s2 and s3 still use it";
      s2.finished = s2.issued - 1;
      void* still = Allocate(kMock, bytes);
      EXPECT_NE(still, block) << "s3 still uses it";
      s3.finished = s3.issued;
      // A request of this size may be served by an equal block; one of any size looks for events.
      std::set<void*> found;
      while (found.size() < 3000 && !found.contains(block))
        found.insert(Allocate(kMock, bytes));
      EXPECT_TRUE(found.contains(block)) << "never came back";
      for (void* pointer : found)
        Free(kMock, pointer);
      Free(kMock, meanwhile);
      Free(kMock, still);
      EmptyCache(kMock);
      s2.finished = s2.issued;
    }
    EXPECT_EQ(Stats(kMock).allocated, 0u);
    EXPECT_EQ(Stats(kMock).reserved, 0u);
  });
}

TEST(Allocator, LeavesEventsAloneWhileAGraphIsCaptured) {
  WithMockProvider([] {
    MockStream s2;
    void* block = Allocate(kMock, kMiB);
    RecordStream(kMock, block, &s2);
    MockRuntime::capturing = true;
    Free(kMock, block);
    EXPECT_NE(Allocate(kMock, kMiB), block);
    EXPECT_EQ(MockRuntime::event_calls, 0);
    MockRuntime::capturing = false;
    EXPECT_EQ(Allocate(kMock, kMiB), block);
    EXPECT_GT(MockRuntime::event_calls, 0);
  });
}

TEST(Allocator, NeverReusesABlockWhoseUseItCannotFollow) {
  WithMockProvider([] {
    MockStream s2;
    void* block = Allocate(kMock, 64 * kMiB);
    RecordStream(kMock, block, &s2);
    MockRuntime::fail_events = true;
    Free(kMock, block);
    MockRuntime::fail_events = false;
    EXPECT_NE(Allocate(kMock, 64 * kMiB), block);
    EmptyCache(kMock);
    EXPECT_EQ(MockRuntime::live_allocations, 2);
  });
}

TEST(Allocator, EmptiesItsCacheBeforeItGivesUp) {
  WithMockProvider([] {
    MockRuntime::capacity = 100 * kMiB;
    void* small = Allocate(kMock, kKiB);
    Free(kMock, Allocate(kMock, 40 * kMiB));
    Free(kMock, Allocate(kMock, 30 * kMiB));
    void* large = Allocate(kMock, 90 * kMiB);
    EXPECT_EQ(Stats(kMock).reserved, 92 * kMiB);
    EXPECT_ERROR(
        Allocate(kMock, 50 * kMiB),
        "out of memory on mock:0: asked for 50.0 MiB, 90.0 MiB is held in tensors (2 blocks, the "
        "largest 90.0 MiB, 1024 B), 2.0 MiB is cached in pieces of at most 2.0 MiB, 8.0 MiB of "
        "100.0 MiB is free on the device");
    EXPECT_ERROR(Allocate(kMock, SIZE_MAX), "out of memory");
    // A segment of the usual 20 MiB does not fit, what is needed does.
    EXPECT_NE(Allocate(kMock, 3 * kMiB), nullptr);
    Free(kMock, large);
    EXPECT_NE(Allocate(kMock, 50 * kMiB), nullptr) << "an error must leave the allocator usable";
    Free(kMock, small);
  });
}

TEST(Allocator, SaysWhoElseHoldsTheMemory) {
  WithMockProvider([] {
    MockRuntime::capacity = 100 * kMiB;
    MockRuntime::used = 30 * kMiB;
    std::vector<void*> blocks;
    for (const std::size_t mebibytes : {10, 20, 10, 12})
      blocks.push_back(Allocate(kMock, mebibytes * kMiB));
    EXPECT_ERROR(Allocate(kMock, 50 * kMiB),
                 "asked for 50.0 MiB, 52.0 MiB is held in tensors (4 blocks, the largest 20.0 MiB, "
                 "12.0 MiB, 10.0 MiB), 0 B is cached, 18.0 MiB of 100.0 MiB is free on the device, "
                 "30.0 MiB is held by others");
  });
}

TEST(Allocator, ServesALargeRequestFromManyCachedPieces) {
  WithMockProvider([] {
    MockRuntime::capacity = 100 * kMiB;
    std::vector<void*> blocks;
    for (int i = 0; i < 9; ++i)
      blocks.push_back(Allocate(kMock, 10 * kMiB));
    for (void* block : blocks)
      Free(kMock, block);
    EXPECT_EQ(Stats(kMock).reserved, 90 * kMiB);
    EXPECT_NE(Allocate(kMock, 80 * kMiB), nullptr);
    EXPECT_LE(Stats(kMock).reserved, 100 * kMiB);
  });
}

TEST(Allocator, FreesABlockOnce) {
  WithMockProvider([] {
    for (const std::size_t bytes : {kKiB, kMiB, 64 * kMiB}) {
      void* block = Allocate(kMock, bytes);
      Free(kMock, block);
      Free(kMock, block);
      EXPECT_EQ(Stats(kMock).allocated, 0u);
      EXPECT_ERROR(RecordStream(kMock, block, nullptr), "no block of the allocator of mock:0");
      EXPECT_EQ(Allocate(kMock, bytes), block);
      void* other = Allocate(kMock, bytes);
      EXPECT_NE(other, block) << "one block was given to two";
      Free(kMock, block);
      Free(kMock, other);
    }
  });
}

TEST(Allocator, WaitsForBusyBlocksBeforeItGivesUp) {
  WithMockProvider([] {
    MockRuntime::capacity = 100 * kMiB;
    MockStream s2;
    void* block = Allocate(kMock, 60 * kMiB);
    ++s2.issued;
    RecordStream(kMock, block, &s2);
    Free(kMock, block);
    EXPECT_NE(Allocate(kMock, 70 * kMiB), nullptr);
    EXPECT_EQ(s2.finished, 1) << "the block was released while in use";
  });
}

TEST(Allocator, IsSafeUnderThreads) {
  const std::size_t allocated = Stats(Device()).allocated;
  std::mutex mutex;
  std::vector<std::pair<std::uint8_t*, std::size_t>> shared;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 2000; ++i) {
        const std::size_t bytes = 1 + random() % (std::size_t{1} << random() % 17);
        auto* pointer = static_cast<std::uint8_t*>(Allocate(Device(), bytes));
        std::memset(pointer, static_cast<int>(bytes % 251), bytes);
        // Blocks are freed by whoever finds them.
        std::pair<std::uint8_t*, std::size_t> other(pointer, bytes);
        {
          const std::lock_guard lock(mutex);
          shared.push_back(other);
          std::swap(shared[random() % shared.size()], shared.back());
          if (shared.size() < 50) continue;
          other = shared.back();
          shared.pop_back();
        }
        EXPECT_EQ(other.first[0], other.second % 251);
        EXPECT_EQ(other.first[other.second - 1], other.second % 251);
        Free(Device(), other.first);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& [pointer, bytes] : shared)
    Free(Device(), pointer);
  EXPECT_EQ(Stats(Device()).allocated, allocated);
}

TEST(Allocator, LetsGoOfUnusedHostMemoryBeforeTheProcessGrows) {
  InChildProcess([] {
    const Device cpu;
    Free(cpu, Allocate(cpu, 640 * kMiB));
    void* larger = Allocate(cpu, 1000 * kMiB);
    EXPECT_EQ(Stats(cpu).reserved, 1000 * kMiB);
    Free(cpu, larger);
    // Some slack is worth not asking again.
    void* medium = Allocate(cpu, kMiB);
    EXPECT_EQ(Allocate(cpu, 1000 * kMiB), larger);
    EXPECT_EQ(Stats(cpu).reserved, 1020 * kMiB);
    Free(cpu, medium);
  });
}

/// The allocations of a training step of GPT-2 124M: what forward keeps, what backward takes in the
/// reverse order, and temporaries in between.
void TrainingStep(std::int64_t tokens, std::vector<Tensor>& state) {
  const auto temporary = [](std::int64_t n) { return Tensor::Empty({n}); };
  const bool first = state.empty();
  std::vector<std::vector<Tensor>> saved;
  const std::int64_t hidden = tokens * 768;
  for (int layer = 0; layer < 12; ++layer) {
    std::vector<Tensor> kept;
    kept.push_back(temporary(hidden));      // layer norm
    kept.push_back(temporary(2 * tokens));  // its statistics
    kept.push_back(temporary(3 * hidden));  // packed query, key, value
    kept.push_back(temporary(hidden));      // attention
    kept.push_back(temporary(12 * tokens));
    Tensor projected = temporary(hidden);
    kept.push_back(temporary(hidden));
    projected = Tensor();
    kept.push_back(temporary(hidden));
    kept.push_back(temporary(2 * tokens));
    kept.push_back(temporary(4 * hidden));  // before and after GELU
    kept.push_back(temporary(4 * hidden));
    projected = temporary(hidden);
    kept.push_back(temporary(hidden));
    saved.push_back(std::move(kept));
  }
  Tensor logits = temporary(tokens * 50257);
  Tensor loss = temporary(1);
  std::vector<std::int64_t> parameters = {50257 * 768, 1024 * 768};
  if (first) state.push_back(temporary(parameters[0]));  // the gradient of the embedding
  Tensor gradient = temporary(hidden);
  logits = Tensor();
  while (!saved.empty()) {
    for (const std::int64_t n : {4 * hidden, 4 * hidden, hidden, hidden, 3 * hidden, hidden}) {
      Tensor next = temporary(n);
      gradient = next;
      if (first) state.push_back(temporary(n == 3 * hidden ? 3 * 768 * 768 : 768 * 768));
    }
    saved.pop_back();
  }
  if (first) {
    for (int moment = 0; moment < 2; ++moment) {
      for (const std::int64_t n : parameters)
        state.push_back(temporary(n));
    }
  }
}

class TrainingTrace : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(TrainingTrace, DoesNotFragment) {
  InChildProcess([] {
    std::vector<Tensor> state;
    for (int step = 0; step < 3; ++step)
      TrainingStep(GetParam(), state);
    const std::uint64_t warm = Stats(Device()).provider_allocations;
    for (int step = 0; step < 10; ++step)
      TrainingStep(GetParam(), state);
    const MemoryStats stats = Stats(Device());
    EXPECT_EQ(stats.provider_allocations, warm) << "a steady state asks the system for nothing";
    EXPECT_LT(stats.peak_reserved, stats.peak_allocated / 8 * 9 + 136 * kMiB);
  });
}

INSTANTIATE_TEST_SUITE_P(Tokens, TrainingTrace, ::testing::Values(64, 256, 1000, 1024, 4096));

}  // namespace
}  // namespace infini_train
