#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <thread>

#include "infini_train/core/generator.h"
#include "infini_train/core/philox.h"

namespace infini_train {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers published with the Random123 library for philox4x32-10.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox4x32(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32(UINT64_MAX, UINT64_MAX, UINT64_MAX),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, MakesFloatsBelowOne) {
  EXPECT_EQ(UniformFromBits(0), 0.0f);
  EXPECT_EQ(UniformFromBits(0x80000000u), 0.5f);
  EXPECT_EQ(UniformFromBits(UINT32_MAX), 1.0f - 0x1p-24f);
}

TEST(Generator, TakesOneOffsetForEachDraw) {
  Generator generator(7);
  EXPECT_EQ(generator.Next(), (Generator::State{7, 0}));
  EXPECT_EQ(generator.Next(), (Generator::State{7, 1}));
  const Generator::State saved = generator.state();
  const Generator::State next = generator.Next();
  generator.set_state(saved);
  EXPECT_EQ(generator.Next(), next);
}

TEST(Generator, BelongsToItsThread) {
  ManualSeed(3);
  DefaultGenerator().Next();
  std::thread([] { EXPECT_EQ(DefaultGenerator().state(), (Generator::State{0, 0})); }).join();
  EXPECT_EQ(DefaultGenerator().state(), (Generator::State{3, 1}));
  ManualSeed(3);
  EXPECT_EQ(DefaultGenerator().state(), (Generator::State{3, 0}));
}

}  // namespace
}  // namespace infini_train
