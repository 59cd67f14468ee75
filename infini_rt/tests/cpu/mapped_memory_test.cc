#include <infini/rt.h>
#include <infini/rt/cpu/runtime.h>

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace infini::rt::runtime {
namespace {

using Cpu = Runtime<Device::Type::kCpu>;

/// Ranges of addresses with memory behind some of them.
class CpuMappedMemory : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(Cpu::MemGetAllocationGranularity(&piece_), kSuccess);
    ASSERT_EQ(Cpu::MemAddressReserve(&range_, 8 * piece_), kSuccess);
    free_ = FreeBytes();
  }
  void TearDown() override {
    EXPECT_EQ(FreeBytes(), free_);
    EXPECT_EQ(Cpu::MemAddressFree(range_, 8 * piece_), kSuccess);
    Cpu::GetLastError();
  }

  static std::size_t FreeBytes() {
    std::size_t free = 0;
    EXPECT_EQ(Cpu::MemGetInfo(&free, nullptr), kSuccess);
    return free;
  }
  void* At(std::size_t piece) const { return static_cast<char*>(range_) + piece * piece_; }

  void* range_ = nullptr;
  std::size_t piece_ = 0;
  std::size_t free_ = 0;
};

TEST_F(CpuMappedMemory, HoldsWhatCopiesWrite) {
  ASSERT_EQ(reinterpret_cast<std::uintptr_t>(range_) % piece_, 0u);
  EXPECT_EQ(FreeBytes(), free_) << "addresses alone cost nothing";
  ASSERT_EQ(Cpu::MemMap(At(2), piece_), kSuccess);
  ASSERT_EQ(Cpu::MemMap(At(3), 2 * piece_), kSuccess);
  EXPECT_EQ(FreeBytes(), free_ - 3 * piece_);
  // Across what two calls mapped.
  std::vector<char> bytes(2 * piece_, 7), found(2 * piece_);
  ASSERT_EQ(Cpu::Memcpy(At(2), bytes.data(), bytes.size(), kMemcpyHostToDevice), kSuccess);
  ASSERT_EQ(Cpu::Memcpy(found.data(), At(2), found.size(), kMemcpyDeviceToHost), kSuccess);
  EXPECT_EQ(found, bytes);
  // A part of what one call mapped goes, the rest stays.
  ASSERT_EQ(Cpu::MemUnmap(At(3), piece_), kSuccess);
  EXPECT_EQ(FreeBytes(), free_ - 2 * piece_);
  ASSERT_EQ(Cpu::Memcpy(found.data(), At(2), piece_, kMemcpyDeviceToHost), kSuccess);
  EXPECT_EQ(found[piece_ - 1], 7);
  ASSERT_EQ(Cpu::MemMap(At(3), piece_), kSuccess);
  ASSERT_EQ(Cpu::Memset(At(3), 1, piece_), kSuccess);
  ASSERT_EQ(Cpu::DeviceSynchronize(), kSuccess);
  EXPECT_EQ(Cpu::MemUnmap(At(2), 3 * piece_), kSuccess);
}

TEST_F(CpuMappedMemory, WhatCannotBeIsAnError) {
  ASSERT_EQ(Cpu::MemMap(At(2), 2 * piece_), kSuccess);
  EXPECT_EQ(Cpu::MemMap(At(3), piece_), kErrorInvalidValue) << "it has memory";
  EXPECT_EQ(Cpu::MemMap(At(1), 2 * piece_), kErrorInvalidValue);
  EXPECT_EQ(Cpu::MemUnmap(At(1), 2 * piece_), kErrorInvalidValue) << "a part has none";
  EXPECT_EQ(Cpu::MemMap(At(4), piece_ / 2), kErrorInvalidValue);
  EXPECT_EQ(Cpu::MemMap(static_cast<char*>(At(4)) + 4096, piece_), kErrorInvalidValue);
  EXPECT_EQ(Cpu::MemMap(At(7), 2 * piece_), kErrorInvalidValue) << "beyond the end";
  EXPECT_EQ(Cpu::MemMap(&piece_, piece_), kErrorInvalidValue);
  EXPECT_EQ(Cpu::MemMap(At(0), 0), kErrorInvalidValue);
  EXPECT_EQ(Cpu::MemAddressFree(range_, 8 * piece_), kErrorInvalidValue) << "some has memory";
  EXPECT_EQ(Cpu::MemAddressFree(range_, 4 * piece_), kErrorInvalidValue);
  EXPECT_EQ(Cpu::Free(range_), kErrorInvalidValue);
  EXPECT_EQ(Cpu::FreeAsync(range_, nullptr), kErrorInvalidValue);
  EXPECT_EQ(FreeBytes(), free_ - 2 * piece_);
  EXPECT_EQ(Cpu::MemUnmap(At(2), 2 * piece_), kSuccess);
  void* range = nullptr;
  EXPECT_EQ(Cpu::MemAddressReserve(&range, piece_ + 1), kErrorInvalidValue);
  EXPECT_EQ(Cpu::MemAddressReserve(&range, SIZE_MAX / piece_ * piece_), kErrorMemoryAllocation);
}

TEST_F(CpuMappedMemory, IsTheMemoryOfItsDevice) {
  std::size_t total = 0;
  ASSERT_EQ(Cpu::MemGetInfo(nullptr, &total), kSuccess);
  const std::size_t bytes = (total / piece_ + 1) * piece_;
  void* range = nullptr;
  ASSERT_EQ(Cpu::MemAddressReserve(&range, bytes), kSuccess);
  EXPECT_EQ(Cpu::MemMap(range, bytes), kErrorMemoryAllocation) << "more than there is";
  EXPECT_EQ(FreeBytes(), free_);
  ASSERT_EQ(Cpu::SetDevice(1), kSuccess);
  const std::size_t other = FreeBytes();
  EXPECT_EQ(Cpu::MemMap(range, piece_), kSuccess);
  EXPECT_EQ(FreeBytes(), other) << "the range is of device 0";
  ASSERT_EQ(Cpu::SetDevice(0), kSuccess);
  EXPECT_EQ(FreeBytes(), free_ - piece_);
  EXPECT_EQ(Cpu::MemUnmap(range, piece_), kSuccess);
  EXPECT_EQ(Cpu::MemAddressFree(range, bytes), kSuccess);
}

}  // namespace
}  // namespace infini::rt::runtime
