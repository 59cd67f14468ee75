// The race mode finds unordered accesses to shared memory, and only those.

#include <cstdint>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/simt/emulated.h"

namespace infini_train::simt {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Optional;

class Races : public testing::TestWithParam<int> {
 protected:
  const OptionsGuard options_{{.warp_size = GetParam(), .check_races = true}};
};

SIMT_KERNEL void NeighbourWithoutBarrier(int* out) {
  SIMT_SHARED(int, s, 64);
  s[ThreadIndex()] = 1;
  out[ThreadIndex()] = s[(ThreadIndex() + 63) % 64];
}
SIMT_KERNEL void NeighbourAfterBarrier(int* out) {
  SIMT_SHARED(int, s, 64);
  for (int i = 0; i < 3; ++i) {
    s[ThreadIndex()] = i;
    SyncBlock();
    out[ThreadIndex()] = s[(ThreadIndex() + 63) % 64];
    SyncBlock();
  }
}
SIMT_KERNEL void ReadThenWrite(int* out) {
  SIMT_SHARED(int, s, 64);
  s[ThreadIndex()] = 1;
  SyncBlock();
  out[ThreadIndex()] = s[(ThreadIndex() + 1) % 64];
  s[ThreadIndex()] = 2;  // The barrier before it is missing.
}
SIMT_KERNEL void WithinGroup(int* out) {
  SIMT_SHARED(int, s, 64);
  s[ThreadIndex()] = 1;
  SyncGroup<16>();
  out[ThreadIndex()] = s[ThreadIndex() ^ 15];
}
SIMT_KERNEL void AcrossGroups(int* out) {
  SIMT_SHARED(int, s, 64);
  s[ThreadIndex()] = 1;
  SyncGroup<16>();
  out[ThreadIndex()] = s[ThreadIndex() ^ 16];
}
/// 0 and 8 are ordered through lane 4's part in two groups of different widths.
SIMT_KERNEL void ChainOfGroups(int* out) {
  SIMT_SHARED(int, s, 1);
  if (ThreadIndex() == 0) s[0] = 1;
  SyncGroup<8>();
  SyncGroup<16>();
  if (ThreadIndex() == 8) out[0] = s[0];
}
SIMT_KERNEL void EveryLaneWrites() {
  SIMT_SHARED(int, s, 1);
  s[0] = 1;
}
SIMT_KERNEL void EveryLaneAdds(int* out) {
  SIMT_SHARED(std::int32_t, s, 1);
  if (ThreadIndex() == 0) s[0] = 0;
  SyncBlock();
  AtomicAdd(s, 0, 1);
  SyncBlock();
  if (ThreadIndex() == 0) out[0] = s[0];
}
SIMT_KERNEL void AddAgainstRead(int* out) {
  SIMT_SHARED(std::int32_t, s, 1);
  if (ThreadIndex() == 0) s[0] = 0;
  SyncBlock();
  AtomicAdd(s, 0, 1);
  if (ThreadIndex() == 0) out[0] = s[0];
}
SIMT_KERNEL void NeighbouringBytes() {
  SIMT_SHARED(std::uint8_t, s, 64);
  s[ThreadIndex()] = std::uint8_t{1};
}
SIMT_KERNEL void OverlappingVector() {
  SIMT_SHARED(float, s, 64);
  if (ThreadIndex() == 0) s.Store(4, Vec<float, 4>{});
  if (ThreadIndex() == 1) s[7] = 1.0f;
}

TEST_P(Races, AreFound) {
  int out[64];
  EXPECT_THAT(
      Emulate({.block = 64}, NeighbourWithoutBarrier, out),
      Optional(AllOf(HasSubstr("race on shared memory 's'"), HasSubstr("lane 0 writes it at"),
                     HasSubstr("lane 1 reads it at"), HasSubstr("simt/race_test.cc:"),
                     HasSubstr("NeighbourWithoutBarrier"))));
  EXPECT_THAT(Emulate({.block = 64}, ReadThenWrite, out),
              Optional(AllOf(HasSubstr("reads it at"), HasSubstr("writes it at"))));
  EXPECT_THAT(Emulate({.block = 64}, AcrossGroups, out), Optional(HasSubstr("race on")));
  EXPECT_THAT(Emulate({.block = 64}, EveryLaneWrites),
              Optional(AllOf(HasSubstr("lane 0 writes"), HasSubstr("lane 1 writes"))));
  EXPECT_THAT(Emulate({.block = 64}, AddAgainstRead, out),
              Optional(HasSubstr("atomically updates")));
  EXPECT_THAT(Emulate({.block = 64}, OverlappingVector), Optional(HasSubstr("race on")));
}

TEST_P(Races, AreNotSeenWhereThereAreNone) {
  int out[64];
  EXPECT_EQ(Emulate({.block = 64}, NeighbourAfterBarrier, out), std::nullopt);
  EXPECT_EQ(Emulate({.block = 64}, WithinGroup, out), std::nullopt);
  EXPECT_EQ(Emulate({.block = 16}, ChainOfGroups, out), std::nullopt);
  EXPECT_EQ(Emulate({.block = 64}, EveryLaneAdds, out), std::nullopt);
  EXPECT_EQ(out[0], 64);
  EXPECT_EQ(Emulate({.block = 64}, NeighbouringBytes), std::nullopt);
}

SIMT_KERNEL void Reduce(float* out) {
  out[ThreadIndex()] = ReduceBlock(1.0f, SumOp{}, 0.0f);
  out[ThreadIndex()] += ReduceBlock(1.0f, SumOp{}, 0.0f);
}

TEST_P(Races, ReductionsHaveNone) {
  float out[256];
  EXPECT_EQ(Emulate({.grid_x = 4, .block = 256}, Reduce, out), std::nullopt);
}
INSTANTIATE_TEST_SUITE_P(Warp, Races, testing::Values(32, 64));

TEST(RaceMode, IsOffByDefault) {
  int out[64];
  const OptionsGuard options({});
  EXPECT_EQ(Emulate({.block = 64}, NeighbourWithoutBarrier, out), std::nullopt);
}

}  // namespace
}  // namespace infini_train::simt
