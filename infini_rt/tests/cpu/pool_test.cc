#include <infini/rt.h>
#include <infini/rt/cpu/runtime.h>

#include <array>
#include <atomic>
#include <cstdint>

#include <gtest/gtest.h>

namespace infini::rt::runtime {
namespace {

using Cpu = Runtime<Device::Type::kCpu>;

/// Which memory a pool hands out again, and when.
class CpuPool : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(Cpu::StreamCreateWithFlags(&first_, kStreamNonBlocking), kSuccess);
    ASSERT_EQ(Cpu::StreamCreateWithFlags(&second_, kStreamNonBlocking), kSuccess);
    ASSERT_EQ(Cpu::DeviceGetDefaultMemPool(&pool_, 0), kSuccess);
    SetThreshold(UINT64_MAX);
  }
  void TearDown() override {
    open_ = true;
    EXPECT_EQ(Cpu::StreamDestroy(first_), kSuccess);
    EXPECT_EQ(Cpu::StreamDestroy(second_), kSuccess);
    EXPECT_EQ(Cpu::DeviceSynchronize(), kSuccess);
    SetThreshold(0);
    EXPECT_EQ(Cpu::MemPoolTrimTo(pool_, 0), kSuccess);
    EXPECT_EQ(Reserved(), 0u);
  }

  void SetThreshold(std::uint64_t bytes) {
    ASSERT_EQ(Cpu::MemPoolSetAttribute(pool_, kMemPoolAttrReleaseThreshold, &bytes), kSuccess);
  }
  std::uint64_t Attribute(MemPoolAttr attr) {
    std::uint64_t bytes = 0;
    EXPECT_EQ(Cpu::MemPoolGetAttribute(pool_, attr, &bytes), kSuccess);
    return bytes;
  }
  std::uint64_t Reserved() { return Attribute(kMemPoolAttrReservedMemCurrent); }
  void RestartPeaks() {
    for (MemPoolAttr attr : {kMemPoolAttrUsedMemHigh, kMemPoolAttrReservedMemHigh}) {
      std::uint64_t zero = 0;
      ASSERT_EQ(Cpu::MemPoolSetAttribute(pool_, attr, &zero), kSuccess);
    }
  }
  /// Used now and at most, reserved now and at most.
  using Blocks = std::array<std::uint64_t, 4>;
  Blocks Figures() {
    return {Attribute(kMemPoolAttrUsedMemCurrent) / kBytes,
            Attribute(kMemPoolAttrUsedMemHigh) / kBytes, Reserved() / kBytes,
            Attribute(kMemPoolAttrReservedMemHigh) / kBytes};
  }
  void Block(Stream stream) {
    auto wait = [](void* data) {
      while (!static_cast<std::atomic<bool>*>(data)->load()) {
      }
    };
    ASSERT_EQ(Cpu::LaunchHostFunc(stream, wait, &open_), kSuccess);
  }
  void* Allocate(Stream stream) {
    void* ptr = nullptr;
    EXPECT_EQ(Cpu::MallocAsync(&ptr, kBytes, stream), kSuccess);
    return ptr;
  }

  static constexpr std::size_t kBytes = 1 << 20;
  Stream first_ = nullptr, second_ = nullptr;
  MemPool pool_ = nullptr;
  std::atomic<bool> open_{false};
};

TEST_F(CpuPool, SameStreamReusesAtOnce) {
  Block(first_);
  void* p = Allocate(first_);
  ASSERT_EQ(Cpu::FreeAsync(p, first_), kSuccess);
  void* q = Allocate(first_);
  EXPECT_EQ(p, q);
  open_ = true;
  ASSERT_EQ(Cpu::FreeAsync(q, first_), kSuccess);
}

TEST_F(CpuPool, OtherStreamsWaitForTheFreePoint) {
  void* p = Allocate(first_);
  Block(first_);
  ASSERT_EQ(Cpu::FreeAsync(p, first_), kSuccess);
  void* q = Allocate(second_);
  EXPECT_NE(p, q);
  open_ = true;
  ASSERT_EQ(Cpu::StreamSynchronize(first_), kSuccess);
  void* r = Allocate(second_);
  EXPECT_EQ(p, r);
  ASSERT_EQ(Cpu::FreeAsync(q, second_), kSuccess);
  ASSERT_EQ(Cpu::FreeAsync(r, second_), kSuccess);
}

TEST_F(CpuPool, SimilarSizesShareBlocks) {
  void* p = Allocate(first_);
  ASSERT_EQ(Cpu::FreeAsync(p, first_), kSuccess);
  void* q = nullptr;
  ASSERT_EQ(Cpu::MallocAsync(&q, kBytes - 1000, first_), kSuccess);
  EXPECT_EQ(p, q);
  ASSERT_EQ(Cpu::FreeAsync(q, first_), kSuccess);
  void* r = nullptr;
  ASSERT_EQ(Cpu::MallocAsync(&r, kBytes / 2, first_), kSuccess);
  EXPECT_NE(p, r);
  ASSERT_EQ(Cpu::FreeAsync(r, first_), kSuccess);
}

TEST_F(CpuPool, TrimKeepsWhatIsAskedFor) {
  void* blocks[4];
  for (void*& block : blocks)
    block = Allocate(first_);
  for (void* block : blocks)
    ASSERT_EQ(Cpu::FreeAsync(block, first_), kSuccess);
  ASSERT_EQ(Cpu::StreamSynchronize(first_), kSuccess);
  EXPECT_EQ(Reserved(), 4 * kBytes);
  ASSERT_EQ(Cpu::MemPoolTrimTo(pool_, 2 * kBytes), kSuccess);
  EXPECT_EQ(Reserved(), 2 * kBytes);
}

TEST_F(CpuPool, FiguresAndPeaksAreExact) {
  RestartPeaks();
  EXPECT_EQ(Figures(), (Blocks{0, 0, 0, 0}));
  void* p = Allocate(first_);
  void* q = Allocate(first_);
  void* r = Allocate(second_);
  EXPECT_EQ(Figures(), (Blocks{3, 3, 3, 3}));
  ASSERT_EQ(Cpu::FreeAsync(p, first_), kSuccess);
  ASSERT_EQ(Cpu::FreeAsync(q, first_), kSuccess);
  EXPECT_EQ(Figures(), (Blocks{1, 3, 3, 3}));
  // What is reserved counts on, and a peak begins at what is there.
  RestartPeaks();
  EXPECT_EQ(Figures(), (Blocks{1, 1, 3, 3}));
  p = Allocate(first_);
  EXPECT_EQ(Figures(), (Blocks{2, 2, 3, 3}));
  ASSERT_EQ(Cpu::FreeAsync(p, first_), kSuccess);
  ASSERT_EQ(Cpu::FreeAsync(r, second_), kSuccess);
  ASSERT_EQ(Cpu::DeviceSynchronize(), kSuccess);
  ASSERT_EQ(Cpu::MemPoolTrimTo(pool_, kBytes), kSuccess);
  EXPECT_EQ(Figures(), (Blocks{0, 2, 1, 3}));
  // Memory of `Malloc` is no memory of the pool.
  ASSERT_EQ(Cpu::Malloc(&p, kBytes), kSuccess);
  EXPECT_EQ(Figures(), (Blocks{0, 2, 1, 3}));
  ASSERT_EQ(Cpu::Free(p), kSuccess);
}

TEST_F(CpuPool, MemoryPressureReleasesCachedBlocks) {
  void* p = Allocate(first_);
  ASSERT_EQ(Cpu::FreeAsync(p, first_), kSuccess);
  ASSERT_EQ(Cpu::StreamSynchronize(first_), kSuccess);
  void* too_much = nullptr;
  EXPECT_EQ(Cpu::Malloc(&too_much, std::size_t{1} << 50), kErrorMemoryAllocation);
  EXPECT_EQ(Reserved(), 0u);
  Cpu::GetLastError();
}

}  // namespace
}  // namespace infini::rt::runtime
