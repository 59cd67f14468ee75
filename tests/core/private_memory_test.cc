// Memory that is set aside for graphs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

#include "infini_train/core/device/allocator.h"
#include "infini_train/core/error.h"
#include "tests/common/errors.h"
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
using ::infini_train::test::InChildProcess;
using ::infini_train::test::MessageOf;
using ::infini_train::test::MockRuntime;
using ::infini_train::test::MockStream;
using ::testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;
const Device kMock(DeviceType::kPrivateUse1, 0);
constexpr std::size_t kSizes[] = {1000, kMiB, 64 * kMiB};

template <typename Body>
void WithMockProvider(Body&& body) {
  InChildProcess([&] {
    test::RegisterMockProvider();
    body();
  });
}

/// A block that was allocated and freed inside the memory's scope.
void* UsedInside(PrivateMemory& memory, std::size_t bytes) {
  const PrivateMemory::Scope scope(memory);
  void* block = Allocate(kMock, bytes);
  Free(kMock, block);
  return block;
}

TEST(PrivateMemory, IsUsedInsideItsScopeAlone) {
  WithMockProvider([] {
    for (const std::size_t bytes : kSizes) {
      PrivateMemory memory(kMock);
      PrivateMemory other(kMock);
      void* block = UsedInside(memory, bytes);
      for (int i = 0; i < 50; ++i)
        EXPECT_NE(Allocate(kMock, bytes), block);
      EXPECT_NE(UsedInside(other, bytes), block);
      EXPECT_EQ(UsedInside(memory, bytes), block);
      MockStream stream;
      const StreamGuard guard(kMock, &stream);
      EXPECT_NE(UsedInside(memory, bytes), block) << "streams stay apart inside as well";
    }
    EXPECT_EQ(Stats(kMock).private_reserved, 0u);
  });
}

TEST(PrivateMemory, DoesNotUseWhatOthersFreed) {
  WithMockProvider([] {
    PrivateMemory memory(kMock);
    for (const std::size_t bytes : kSizes) {
      void* block = Allocate(kMock, bytes);
      Free(kMock, block);
      EXPECT_NE(UsedInside(memory, bytes), block);
    }
  });
}

TEST(PrivateMemory, IsNotGivenBackBeforeItsEnd) {
  WithMockProvider([] {
    MockRuntime::capacity = 100 * kMiB;
    std::optional<PrivateMemory> memory(std::in_place, kMock);
    UsedInside(*memory, 60 * kMiB);
    EXPECT_EQ(Stats(kMock).private_reserved, 60 * kMiB);
    EmptyCache(kMock);
    EXPECT_EQ(Stats(kMock).reserved, 60 * kMiB);
    EXPECT_THAT(MessageOf([] { Allocate(kMock, 50 * kMiB); }),
                HasSubstr("0 B is held in tensors, 60.0 MiB is set aside for graphs, 0 B is "
                          "cached, 40.0 MiB of 100.0 MiB is free"));
    memory.reset();
    EXPECT_EQ(Stats(kMock).reserved, 0u);
    EXPECT_EQ(Stats(kMock).private_reserved, 0u);
    EXPECT_EQ(MockRuntime::live_allocations, 0);
    EXPECT_GT(MockRuntime::device_waits, 0) << "its last use may still have been on its way";
    EXPECT_NE(Allocate(kMock, 50 * kMiB), nullptr);
  });
}

TEST(PrivateMemory, WhatIsInUseAtTheEndGoesToTheStreamOfItsMaker) {
  WithMockProvider([] {
    MockStream stream;
    for (const std::size_t bytes : kSizes) {
      void* block = nullptr;
      const StreamGuard guard(kMock, &stream);
      {
        PrivateMemory memory(kMock);
        MockStream inside;
        const StreamGuard inside_guard(kMock, &inside);
        const PrivateMemory::Scope scope(memory);
        block = Allocate(kMock, bytes);
      }
      EXPECT_EQ(Stats(kMock).private_reserved, 0u);
      EXPECT_GE(Stats(kMock).allocated, bytes);
      EXPECT_NE(Allocate(kMock, bytes), block);
      Free(kMock, block);
      EXPECT_EQ(Allocate(kMock, bytes), block);
    }
  });
}

TEST(PrivateMemory, KeepsWhatIsFreedInsideOutOfUse) {
  WithMockProvider([] {
    MockStream reader;
    for (const std::size_t bytes : kSizes) {
      void* plain = Allocate(kMock, bytes);
      void* read = Allocate(kMock, bytes);
      RecordStream(kMock, read, &reader);
      std::optional<PrivateMemory> memory(std::in_place, kMock);
      {
        const PrivateMemory::Scope scope(*memory);
        Free(kMock, plain);
        Free(kMock, read);
        void* own = Allocate(kMock, bytes);
        EXPECT_TRUE(own != plain && own != read);
        RecordStream(kMock, own, &reader);
        Free(kMock, own);
        void* next = Allocate(kMock, bytes);
        EXPECT_NE(next, own) << "a captured branch may still read it";
        Free(kMock, next);
      }
      std::vector<void*> blocks;
      for (int i = 0; i < 20; ++i)
        blocks.push_back(Allocate(kMock, bytes));
      EXPECT_EQ(std::count(blocks.begin(), blocks.end(), plain), 0);
      EXPECT_EQ(std::count(blocks.begin(), blocks.end(), read), 0);
      EXPECT_EQ(MockRuntime::event_calls, 0);
      memory.reset();
      std::vector<void*> later = {Allocate(kMock, bytes), Allocate(kMock, bytes)};
      EXPECT_EQ(std::count(later.begin(), later.end(), plain), 1);
      EXPECT_EQ(std::count(later.begin(), later.end(), read), 1);
    }
  });
}

TEST(PrivateMemory, LeavesOtherThreadsAlone) {
  WithMockProvider([] {
    void* block = Allocate(kMock, kMiB);
    PrivateMemory memory(kMock);
    const PrivateMemory::Scope scope(memory);
    std::thread([&] {
      Free(kMock, block);
      EXPECT_EQ(Allocate(kMock, kMiB), block);
      Free(kMock, block);
    }).join();
    EXPECT_NE(Allocate(kMock, kMiB), block);
    EXPECT_THAT(MessageOf([&] {
                  PrivateMemory other(kMock);
                  const PrivateMemory::Scope second(other);
                }),
                HasSubstr("already captures"));
    EXPECT_NE(Allocate(Device(DeviceType::kPrivateUse1, 1), kMiB), nullptr);
    EXPECT_EQ(Stats(Device(DeviceType::kPrivateUse1, 1)).private_reserved, 0u);
  });
}

TEST(PrivateMemory, TheDeviceIsNotWaitedForInsideAScope) {
  WithMockProvider([] {
    MockRuntime::capacity = 100 * kMiB;
    MockStream stream;
    Free(kMock, Allocate(kMock, 40 * kMiB));
    {
      const StreamGuard guard(kMock, &stream);
      Free(kMock, Allocate(kMock, 20 * kMiB));
    }
    PrivateMemory memory(kMock);
    const PrivateMemory::Scope scope(memory);
    EXPECT_NE(Allocate(kMock, 70 * kMiB), nullptr) << "what the default stream has is trimmed";
    EXPECT_EQ(Stats(kMock).reserved, 90 * kMiB);
    EXPECT_EQ(MockRuntime::device_waits, 0);
    EXPECT_THAT(MessageOf([] { Allocate(kMock, 20 * kMiB); }), HasSubstr("out of memory"));
    EXPECT_EQ(MockRuntime::device_waits, 0);
  });
}

}  // namespace
}  // namespace infini_train
