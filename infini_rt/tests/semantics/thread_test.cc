#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "semantics/fixture.h"

namespace infini::rt::runtime {
namespace {

class ThreadSemantics : public Semantics {};

constexpr int kThreads = 64;

template <typename Body>
void RunThreads(Device::Type type, Body body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([type, body, i] {
      ASSERT_EQ(set_runtime_device_type(type), kSuccess);
      body(i);
    });
  }
  for (auto& thread : threads)
    thread.join();
}

TEST_P(ThreadSemantics, ManyThreadsWithTheirOwnStreams) {
  RunThreads(GetParam(), [](int i) {
    constexpr std::size_t kSize = 4096;
    TestStream stream;
    TestEvent event;
    DeviceBuffer buffer(kSize);
    PinnedBuffer host(kSize);
    for (int round = 0; round < 20; ++round) {
      int value = (i + round) & 0xff;
      ASSERT_OK(MemsetAsync(buffer.get(), value, kSize, stream));
      ASSERT_OK(MemcpyAsync(host.get(), buffer.get(), kSize, kMemcpyDeviceToHost, stream));
      ASSERT_OK(EventRecord(event, stream));
      ASSERT_OK(EventSynchronize(event));
      ASSERT_TRUE(AllEqual(host, value));
    }
  });
}

TEST_P(ThreadSemantics, ManyThreadsInOneStream) {
  TestStream stream;
  DeviceBuffer buffer(kThreads * 64);
  Stream shared = stream;
  std::byte* base = buffer.bytes();
  RunThreads(GetParam(), [=](int i) {
    for (int round = 0; round <= 50; ++round) {
      ASSERT_OK(MemsetAsync(base + i * 64, i + round, 64, shared));
    }
  });
  auto bytes = buffer.Read();
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(bytes[static_cast<std::size_t>(i) * 64 + 63], static_cast<std::uint8_t>(i + 50));
  }
}

TEST_P(ThreadSemantics, ManyThreadsInTheDefaultStream) {
  DeviceBuffer buffer(kThreads * 64);
  std::byte* base = buffer.bytes();
  RunThreads(GetParam(), [=](int i) {
    TestStream stream;
    for (int round = 0; round <= 10; ++round) {
      ASSERT_OK(MemsetAsync(base + i * 64, i, 64, stream));
      ASSERT_OK(MemsetAsync(base + i * 64, i + round, 64, nullptr));
    }
  });
  auto bytes = buffer.Read();
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(bytes[static_cast<std::size_t>(i) * 64], static_cast<std::uint8_t>(i + 10));
  }
}

TEST_P(ThreadSemantics, AllocationsFromManyThreads) {
  bool async = Has(kFeatureAsyncMemory);
  RunThreads(GetParam(), [async](int i) {
    TestStream stream;
    for (int round = 0; round < 10; ++round) {
      std::size_t size = static_cast<std::size_t>((i * 37 + round * 101) % 5000 + 1);
      void* ptr = nullptr;
      ASSERT_OK(async ? MallocAsync(&ptr, size, stream) : Malloc(&ptr, size));
      ASSERT_OK(MemsetAsync(ptr, i, size, stream));
      ASSERT_OK(async ? FreeAsync(ptr, stream) : Free(ptr));
    }
    ASSERT_OK(StreamSynchronize(stream));
  });
}

TEST_P(ThreadSemantics, EventsSharedBetweenThreads) {
  TestStream stream;
  TestEvent event;
  Event shared = event;
  Stream source = stream;
  RunThreads(GetParam(), [=](int i) {
    for (int round = 0; round < 20; ++round) {
      if (i % 2 == 0) {
        ASSERT_OK(EventRecord(shared, source));
      } else {
        Error status = EventQuery(shared);
        ASSERT_TRUE(status == kSuccess || status == kErrorNotReady);
      }
    }
    ASSERT_OK(EventSynchronize(shared));
  });
}

TEST_P(ThreadSemantics, ErrorsStayInTheirThread) {
  RunThreads(GetParam(), [](int i) {
    for (int round = 0; round < 100; ++round) {
      if (i % 2 == 0) {
        ASSERT_EQ(SetDevice(99), kErrorInvalidDevice);
        ASSERT_EQ(GetLastError(), kErrorInvalidDevice);
      } else {
        ASSERT_OK(GetLastError());
      }
    }
  });
}

INSTANTIATE_SEMANTICS(ThreadSemantics);

}  // namespace
}  // namespace infini::rt::runtime
