// Kernels that begin early: what they may touch before the launches before them have ended.

#include <array>
#include <cstdint>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/simt/emulated.h"

namespace infini_train::simt {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Optional;

constexpr int kLanes = 64;
constexpr Geometry kEarly{.grid_x = 2, .block = kLanes, .begins_early = true};
constexpr Geometry kInTurn{.grid_x = 2, .block = kLanes};

using Numbers = std::array<int, kLanes>;

/// Adds the lanes' `weights`, read early, to their `x`, read behind the wait. The lanes take turns
/// in between.
SIMT_KERNEL void AddEarly(int* out, const int* x, const int* weights) {
  ReadsEarly(weights, kLanes);
  const int weight = Load(weights + ThreadIndex());
  SyncBlock();
  LetLaterBegin();
  WaitForEarlier();
  Store(out + ThreadIndex(), weight + Load(x + ThreadIndex()));
}
SIMT_KERNEL void AskForOtherEarly(int* out, const int* x, const int* weights) {
  ReadsEarly(weights, kLanes);
  BringNear(weights + ThreadIndex());
  BringNear(x + ThreadIndex());
  WaitForEarlier();
  Store(out + ThreadIndex(), Load(x + ThreadIndex()));
}
SIMT_KERNEL void ReadOtherEarly(int* out, const int* x, const int* weights) {
  ReadsEarly(weights, kLanes);
  const int number = Load(x + ThreadIndex());
  WaitForEarlier();
  Store(out + ThreadIndex(), number);
}
/// The vector of the last lane ends behind what is named.
SIMT_KERNEL void ReadTooFarEarly(int* out, const int* x, const int* weights) {
  ReadsEarly(weights, kLanes);
  const Vec<int, 4> numbers = Load<4>(weights + ThreadIndex() / 4 * 4 + 4);
  WaitForEarlier();
  Store(out + ThreadIndex(), numbers[0] + Load(x));
}
SIMT_KERNEL void WriteEarly(int* out, const int*, const int* weights) {
  ReadsEarly(weights, kLanes);
  Store(out + ThreadIndex(), Load(weights + ThreadIndex()));
  WaitForEarlier();
}
SIMT_KERNEL void AddAtomicallyEarly(int* out, const int*, const int*) {
  ReadsEarly(out, kLanes);
  AtomicAdd(out + ThreadIndex(), 1);
  WaitForEarlier();
}
/// Barriers do not wait for the other lanes' launches.
SIMT_KERNEL void OneLaneWaits(int* out, const int* x, const int*) {
  if (ThreadIndex() == 0) WaitForEarlier();
  SyncBlock();
  const int number = Load(x + ThreadIndex());
  WaitForEarlier();
  Store(out + ThreadIndex(), number);
}
SIMT_KERNEL void NeverWaits(int*, const int*, const int*) {}

class Early : public testing::Test {
 protected:
  using Kernel = void(int*, const int*, const int*);

  std::optional<std::string> Run(const Geometry& geometry, Kernel* kernel) {
    return Emulate(geometry, kernel, out_.data(), x_.data(), weights_.data());
  }

  alignas(16) Numbers out_{};
  alignas(16) Numbers x_{};
  alignas(16) Numbers weights_{};
};

TEST_F(Early, ReadsOfWhatIsNamedComeBeforeTheWait) {
  for (int i = 0; i < kLanes; ++i) {
    x_[i] = i;
    weights_[i] = 100 * i;
  }
  EXPECT_EQ(Run(kEarly, &AddEarly), std::nullopt);
  for (int i = 0; i < kLanes; ++i)
    EXPECT_EQ(out_[i], 101 * i);
}

TEST_F(Early, OtherAccessesBeforeTheWaitAreFaults) {
  const auto read = HasSubstr("read before WaitForEarlier()");
  EXPECT_THAT(Run(kEarly, &ReadOtherEarly),
              Optional(AllOf(read, HasSubstr("ReadOtherEarly"), HasSubstr("lane 0"))));
  EXPECT_THAT(Run(kEarly, &ReadTooFarEarly), Optional(AllOf(read, HasSubstr("lane 60"))));
  EXPECT_THAT(Run(kEarly, &AskForOtherEarly), Optional(AllOf(read, HasSubstr("lane 0"))));
  const auto write = HasSubstr("write before WaitForEarlier()");
  EXPECT_THAT(Run(kEarly, &WriteEarly), Optional(write));
  EXPECT_THAT(Run(kEarly, &AddAtomicallyEarly), Optional(write));
  EXPECT_THAT(Run(kEarly, &OneLaneWaits), Optional(AllOf(read, HasSubstr("OneLaneWaits"))));
}

TEST_F(Early, EveryLaneWaits) {
  EXPECT_THAT(Run(kEarly, &NeverWaits), Optional(HasSubstr("ended without WaitForEarlier()")));
}

TEST_F(Early, NothingOfThisHoldsForLaunchesInTurn) {
  for (Kernel* kernel : {&AddEarly, &ReadOtherEarly, &AskForOtherEarly, &WriteEarly,
                         &AddAtomicallyEarly, &OneLaneWaits, &NeverWaits})
    EXPECT_EQ(Run(kInTurn, kernel), std::nullopt);
}

}  // namespace
}  // namespace infini_train::simt
