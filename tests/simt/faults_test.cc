// What a kernel does wrong is named: what, which kernel, block and lanes, and where.

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/simt/emulated.h"

namespace infini_train::simt {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Optional;

SIMT_KERNEL void HalfReachesBarrier() {
  if (ThreadIndex() < 32) SyncBlock();
}
SIMT_KERNEL void TwoBarriers() {
  if (ThreadIndex() < 32) {
    SyncBlock();
  } else {
    SyncBlock();
  }
}
SIMT_KERNEL void ShuffleFromReturned(int* out) {
  if (ThreadIndex() == 5) return;
  out[ThreadIndex()] = Shuffle<32>(1, 5);
}
SIMT_KERNEL void TwoShuffles(int* out) {
  if (ThreadIndex() < 7) {
    out[ThreadIndex()] = Shuffle<8>(1, 0);
  } else {
    out[ThreadIndex()] = Shuffle<8>(2, 0);
  }
}
SIMT_KERNEL void BarrierAgainstShuffle() {
  if (ThreadIndex() < 16) {
    SyncBlock();
  } else {
    SyncGroup<32>();
  }
}

TEST(Faults, BarrierThatSomeLanesDoNotReach) {
  EXPECT_THAT(
      Emulate({.grid_x = 3, .block = 64}, HalfReachesBarrier),
      Optional(AllOf(HasSubstr("deadlock: lanes 0-31 wait in SyncBlock at simt/faults_test.cc:"),
                     HasSubstr("lanes 32-63 have returned"), HasSubstr("HalfReachesBarrier"),
                     HasSubstr("block (0, 0, 0)"))));
}

TEST(Faults, DivergentBarrier) {
  EXPECT_THAT(Emulate({.block = 64}, TwoBarriers),
              Optional(MatchesRegex("divergent barrier: lanes 0-31 wait in SyncBlock at "
                                    "simt/faults_test.cc:[0-9]+; this lane calls SyncBlock "
                                    "elsewhere \\[TwoBarriers, block \\(0, 0, 0\\), lane 32, "
                                    "simt/faults_test.cc:[0-9]+\\]")));
}

TEST(Faults, ShuffleFromALaneThatHasReturned) {
  std::vector<int> out(32);
  EXPECT_THAT(Emulate({.block = 32}, ShuffleFromReturned, out.data()),
              Optional(AllOf(HasSubstr("deadlock: lanes 0-4, 6-31 wait in Shuffle<32>"),
                             HasSubstr("lane 5 has returned"))));
}

TEST(Faults, DivergentShuffle) {
  std::vector<int> out(8);
  EXPECT_THAT(Emulate({.block = 8}, TwoShuffles, out.data()),
              Optional(AllOf(HasSubstr("divergent group call: lanes 0-6 wait in Shuffle<8>"),
                             HasSubstr("TwoShuffles, block (0, 0, 0), lane 7"))));
}

TEST(Faults, LanesThatWaitForEachOther) {
  EXPECT_THAT(Emulate({.block = 32}, BarrierAgainstShuffle),
              Optional(AllOf(HasSubstr("lanes 0-15 wait in SyncBlock at "),
                             HasSubstr("lanes 16-31 wait in SyncGroup<32> at "))));
}

template <int kWidth>
SIMT_KERNEL void OneGroupCall() {
  SyncGroup<kWidth>();
}

TEST(Faults, GroupThatTheBlockCutsOff) {
  EXPECT_THAT(Emulate({.block = 40}, OneGroupCall<32>),
              Optional(HasSubstr("SyncGroup<32>: a block of 40 lanes cuts the group off")));
}

TEST(Faults, GroupWiderThanTheWarp) {
  const OptionsGuard options({.warp_size = 32});
  EXPECT_THAT(Emulate({.block = 64}, OneGroupCall<64>),
              Optional(HasSubstr("SyncGroup<64>: the device's warp has 32 lanes")));
}

SIMT_KERNEL void LoadFour(const float* p, float* out) {
  const Vec<float, 4> v = Load<4>(p);
  Store(out, v[0]);
}

TEST(Faults, MisalignedVector) {
  alignas(16) float data[8] = {1};
  float out = 0;
  EXPECT_EQ(Emulate({.block = 1}, LoadFour, data, &out), std::nullopt);
  EXPECT_EQ(out, 1.0f);
  EXPECT_THAT(Emulate({.block = 1}, LoadFour, data + 1, &out),
              Optional(AllOf(HasSubstr("misaligned access to global memory"),
                             HasSubstr("no multiple of 16"), HasSubstr("LoadFour"))));
  EXPECT_THAT(Emulate({.block = 1}, LoadFour, nullptr, &out), Optional(HasSubstr("null pointer")));
}

SIMT_KERNEL void WriteShared(std::int64_t index) {
  SIMT_SHARED(float, tile, 48);
  tile[index] = 1.0f;
}
SIMT_KERNEL void VectorPastTheEnd(std::int64_t index) {
  SIMT_SHARED(float, tile, 48);
  tile.Store(index, Vec<float, 4>{});
}
SIMT_KERNEL void TooMuchShared() {
  SIMT_SHARED(double, first, 12288);
  SIMT_SHARED(double, second, 4097);
  first[0] = 0.0;
  second[0] = 0.0;
}

TEST(Faults, SharedMemoryOutOfBounds) {
  EXPECT_EQ(Emulate({.block = 32}, WriteShared, 47), std::nullopt);
  for (std::int64_t index : {std::int64_t{48}, std::int64_t{-1}, std::int64_t{1} << 62}) {
    EXPECT_THAT(
        Emulate({.block = 32}, WriteShared, index),
        Optional(AllOf(HasSubstr("index " + std::to_string(index) + " of 'tile', which has 48"),
                       HasSubstr("WriteShared"), HasSubstr("simt/faults_test.cc:"))));
  }
  EXPECT_EQ(Emulate({.block = 1}, VectorPastTheEnd, 44), std::nullopt);
  EXPECT_THAT(Emulate({.block = 1}, VectorPastTheEnd, 48),
              Optional(HasSubstr("elements 48 to 51 of 'tile'")));
  EXPECT_THAT(Emulate({.block = 1}, VectorPastTheEnd, 42),
              Optional(HasSubstr("misaligned access to shared memory")));
}

TEST(Faults, SharedMemoryExhausted) {
  EXPECT_THAT(Emulate({.block = 1}, TooMuchShared),
              Optional(HasSubstr("'second' needs 32776 bytes, 98304 of 131072 are in use")));
}

SIMT_KERNEL void ThrowInLane3() {
  if (ThreadIndex() == 3) throw std::runtime_error("no luck");
  SyncBlock();
}

TEST(Faults, ExceptionEndsTheBlock) {
  EXPECT_THAT(Emulate({.block = 64}, ThrowInLane3),
              Optional(HasSubstr("exception in block (0, 0, 0), lane 3: no luck")));
}

SIMT_KERNEL void Sum(int* out) {
  SyncBlock();
  const int sum = ReduceBlock(1, SumOp{}, 0);
  if (ThreadIndex() == 0) out[BlockIndex()] = sum;
}

TEST(Faults, LeaveTheEmulatorUsable) {
  int sum = 0;
  ASSERT_NE(Emulate({.block = 64}, HalfReachesBarrier), std::nullopt);
  ASSERT_NE(Emulate({.block = 64}, ThrowInLane3), std::nullopt);
  ASSERT_EQ(Emulate({.block = 64}, Sum, &sum), std::nullopt);
  EXPECT_EQ(sum, 64);
}

SIMT_KERNEL void FailInLateBlocks() {
  if (BlockIndex() >= 900) throw std::runtime_error("late");
}

TEST(Faults, NameABlockThatFailed) {
  const OptionsGuard options({.threads = 4});
  EXPECT_THAT(Emulate({.grid_x = 1000, .block = 32}, FailInLateBlocks),
              Optional(MatchesRegex("exception in block \\(9[0-9][0-9], 0, 0\\), lane 0: late")));
}

}  // namespace
}  // namespace infini_train::simt
