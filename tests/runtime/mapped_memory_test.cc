// Memory that is mapped into reserved addresses, where the provider has it.

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "infini_train/core/device/allocator.h"
#include "tests/runtime/runtime_test.h"

namespace infini_train::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class RuntimeMappedMemoryTest : public RuntimeTest {
 protected:
  RuntimeMappedMemoryTest() : guard_(device()) {}

  void SetUp() override {
    piece_ = impl().MappingGranularity();
    if (piece_ == 0) GTEST_SKIP() << "this device does not map memory";
    allocator::EmptyCache(device());
  }

  static std::size_t FreeMemory() { return impl().Properties(device().index()).free_memory; }
  static void Write(std::uint8_t* to, const Bytes& bytes) {
    impl().CopyAsync(to, bytes.data(), bytes.size(), CopyKind::kHostToDevice, nullptr);
    impl().SynchronizeStream(nullptr);
  }
  static Bytes Read(const std::uint8_t* from, std::size_t bytes) {
    Bytes content(bytes);
    impl().CopyAsync(content.data(), from, bytes, CopyKind::kDeviceToHost, nullptr);
    impl().SynchronizeStream(nullptr);
    return content;
  }

  const DeviceGuard guard_;
  std::size_t piece_ = 0;
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(RuntimeMappedMemoryTest);

TEST_P(RuntimeMappedMemoryTest, PiecesComeAndGo) {
  auto* range = static_cast<std::uint8_t*>(impl().ReserveAddresses(64 * piece_));
  ASSERT_NE(range, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(range) % piece_, 0u);
  const std::size_t free = FreeMemory();
  ASSERT_TRUE(impl().MapMemory(range + piece_, piece_));
  ASSERT_TRUE(impl().MapMemory(range + 2 * piece_, 9 * piece_));
  const std::size_t taken = free - FreeMemory();
  EXPECT_GE(taken, 10 * piece_);
  EXPECT_LE(taken, 10 * piece_ + 32 * kMiB);
  // Across what two calls mapped.
  const Bytes pattern = Pattern(2 * piece_, 1);
  Write(range + piece_, pattern);
  EXPECT_EQ(Read(range + piece_, pattern.size()), pattern);
  impl().FillBytesAsync(range + 3 * piece_ - 10, 7, 20, nullptr);
  EXPECT_EQ(Read(range + 3 * piece_ - 10, 20), Bytes(20, 7));
  // From the middle of what one call mapped.
  impl().SynchronizeDevice();
  impl().UnmapMemory(range + 4 * piece_, 3 * piece_);
  EXPECT_GE(FreeMemory(), free - taken + 3 * piece_);
  EXPECT_EQ(Read(range + piece_, piece_), Pattern(piece_, 1));
  ASSERT_TRUE(impl().MapMemory(range + 5 * piece_, piece_));
  Write(range + 5 * piece_, Pattern(piece_, 2));
  EXPECT_EQ(Read(range + 5 * piece_, piece_), Pattern(piece_, 2));
  impl().SynchronizeDevice();
  impl().UnmapMemory(range + piece_, 3 * piece_);
  impl().UnmapMemory(range + 5 * piece_, piece_);
  impl().UnmapMemory(range + 7 * piece_, 4 * piece_);
  EXPECT_GE(FreeMemory() + 32 * kMiB, free);
  impl().ReleaseAddresses(range, 64 * piece_);
}

TEST_P(RuntimeMappedMemoryTest, MoreThanThereIsMapsNothing) {
  const DeviceProperties properties = impl().Properties(device().index());
  const std::size_t bytes = (properties.total_memory / piece_ + 1) * piece_;
  auto* range = static_cast<std::uint8_t*>(impl().ReserveAddresses(bytes));
  ASSERT_NE(range, nullptr);
  EXPECT_FALSE(impl().MapMemory(range, bytes));
  EXPECT_GE(FreeMemory() + 64 * kMiB, properties.free_memory);
  ASSERT_TRUE(impl().MapMemory(range, piece_));
  Write(range, Pattern(1000, 3));
  EXPECT_EQ(Read(range, 1000), Pattern(1000, 3));
  impl().UnmapMemory(range, piece_);
  impl().ReleaseAddresses(range, bytes);
}

TEST_P(RuntimeMappedMemoryTest, TheAllocatorGrowsAndTrimsAroundWhatIsInUse) {
  const auto allocate = [](std::size_t bytes) {
    return static_cast<std::uint8_t*>(allocator::Allocate(device(), bytes));
  };
  const std::size_t reserved = allocator::Stats(device()).reserved;
  std::uint8_t* first = allocate(30 * kMiB);
  std::uint8_t* kept = allocate(9 * kMiB);
  std::uint8_t* last = allocate(50 * kMiB);
  const Bytes pattern = Pattern(9 * kMiB, 4);
  Write(kept, pattern);
  allocator::Free(device(), first);
  allocator::Free(device(), last);
  allocator::EmptyCache(device());
  EXPECT_LE(allocator::Stats(device()).reserved - reserved, 9 * kMiB + 2 * piece_);
  EXPECT_EQ(Read(kept, pattern.size()), pattern);
  std::vector<std::uint8_t*> blocks;
  for (const std::size_t mebibytes : {20, 60, 10}) {
    blocks.push_back(allocate(mebibytes * kMiB));
    Write(blocks.back(), Bytes(mebibytes * kMiB, static_cast<std::uint8_t>(mebibytes)));
  }
  EXPECT_EQ(Read(kept, pattern.size()), pattern);
  EXPECT_EQ(Read(blocks[1], 60 * kMiB), Bytes(60 * kMiB, 60));
  for (std::uint8_t* block : blocks)
    allocator::Free(device(), block);
  allocator::Free(device(), kept);
  allocator::EmptyCache(device());
  EXPECT_EQ(allocator::Stats(device()).reserved, reserved);
}

TEST_P(RuntimeMappedMemoryTest, CopiesBetweenDevicesReachIt) {
  if (impl().DeviceCount() < 2) GTEST_SKIP() << "there is one device";
  const Device other(device().type(), device().index() == 0 ? 1 : 0);
  constexpr std::size_t kBytes = 12 * kMiB;
  auto* source = static_cast<std::uint8_t*>(allocator::Allocate(device(), kBytes));
  auto* target = static_cast<std::uint8_t*>(allocator::Allocate(other, kBytes));
  Write(source, Pattern(kBytes, 5));
  impl().CopyPeerAsync(target, other.index(), source, device().index(), kBytes, nullptr);
  impl().SynchronizeStream(nullptr);
  const DeviceGuard guard(other);
  EXPECT_EQ(Read(target, kBytes), Pattern(kBytes, 5));
  allocator::Free(device(), source);
  allocator::Free(other, target);
}

}  // namespace
}  // namespace infini_train::test
