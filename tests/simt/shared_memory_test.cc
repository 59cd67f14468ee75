// Static and dynamic shared memory, and the atomic functions.

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "backends/simt/emulator/traffic.h"
#include "tests/simt/emulated.h"

namespace infini_train::simt {
namespace {

SIMT_KERNEL void ReadUninitialised(float* f, double* d, float* h) {
  SIMT_SHARED(float, floats, 4);
  SIMT_SHARED(double, doubles, 4);
  SIMT_SHARED(BFloat16, halves, 4);
  const float first = floats[3];
  const double second = doubles[3];
  const BFloat16 third = halves[3];
  f[BlockIndex()] = first;
  d[BlockIndex()] = second;
  h[BlockIndex()] = ToCompute(third);
  floats[3] = 1.0f;
  doubles[3] = 1.0;
  halves[3] = BFloat16(1.0f);
}

TEST(SharedMemory, HoldsNansAtTheStartOfEveryBlock) {
  const OptionsGuard options({});
  std::vector<float> f(3), h(3);
  std::vector<double> d(3);
  ASSERT_EQ(Emulate({.grid_x = 3, .block = 1}, ReadUninitialised, f.data(), d.data(), h.data()),
            std::nullopt);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::isnan(f[i]));
    EXPECT_TRUE(std::isnan(d[i]));
    EXPECT_TRUE(std::isnan(h[i]));
  }
}

/// Reverses rows by dynamic memory that two types share.
SIMT_KERNEL void Reverse(int* out, std::int64_t* sizes) {
  SIMT_DYNAMIC_SHARED(std::int32_t, all);
  const auto row = all.Sub(4, BlockSize());
  const auto wide = all.Sub(0, 4).As<double>();
  row[ThreadIndex()] = 10 * ThreadIndex();
  if (ThreadIndex() == 0) wide[1] = 0.5;
  SyncBlock();
  out[ThreadIndex()] = row[BlockSize() - 1 - ThreadIndex()];
  if (ThreadIndex() == 0) {
    const double half = wide[1];
    sizes[0] = all.size();
    sizes[1] = row.size();
    sizes[2] = wide.size();
    sizes[3] = half == 0.5;
  }
}

TEST(SharedMemory, DynamicIsCarvedUp) {
  std::vector<int> out(64);
  std::int64_t sizes[4] = {};
  ASSERT_EQ(
      Emulate({.block = 64, .dynamic_shared_bytes = 4 * (64 + 4)}, Reverse, out.data(), sizes),
      std::nullopt);
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(out[i], 10 * (63 - i));
  EXPECT_EQ(sizes[0], 68);
  EXPECT_EQ(sizes[1], 64);
  EXPECT_EQ(sizes[2], 2);
  EXPECT_EQ(sizes[3], 1);
}

SIMT_KERNEL void Operators(float* out) {
  SIMT_SHARED(float, a, 8);
  SIMT_SHARED(float, b, 8);
  a.Store(4, Vec<float, 4>{{1, 2, 3, 4}});
  const Vec<float, 2> pair = a.Load<2>(6);
  b[0] = a[4];
  b[0] += pair[1];
  b[0] *= 3.0f;
  b[0] -= 1.0f;
  out[0] = b[0];
}

TEST(SharedMemory, ElementsAreAssignedTo) {
  float out = 0;
  ASSERT_EQ(Emulate({.block = 1}, Operators, &out), std::nullopt);
  EXPECT_EQ(out, 14.0f);
}

SIMT_KERNEL void CountInShared(std::int32_t* sum, std::int64_t* largest, std::uint32_t* winner) {
  SIMT_SHARED(std::int32_t, count, 1);
  SIMT_SHARED(std::int64_t, top, 1);
  SIMT_SHARED(std::uint32_t, owner, 1);
  if (ThreadIndex() == 0) {
    count[0] = 0;
    top[0] = -1;
    owner[0] = 0u;
  }
  SyncBlock();
  AtomicAdd(count, 0, 2);
  AtomicMax(top, 0, (ThreadIndex() * 7) % 64);
  const bool won = AtomicCas(owner, 0, 0u, static_cast<std::uint32_t>(ThreadIndex() + 1)) == 0u;
  SyncBlock();
  if (ThreadIndex() == 0) {
    *sum = count[0];
    *largest = top[0];
  }
  if (won) *winner = owner[0];
}

TEST(Atomics, OfSharedMemory) {
  std::int32_t sum = 0;
  std::int64_t largest = 0;
  std::uint32_t winner = 0;
  ASSERT_EQ(Emulate({.block = 64}, CountInShared, &sum, &largest, &winner), std::nullopt);
  EXPECT_EQ(sum, 128);
  EXPECT_EQ(largest, 63);
  EXPECT_GE(winner, 1u);
  EXPECT_LE(winner, 64u);
}

struct Totals {
  std::int32_t i32 = 0;
  std::uint32_t u32 = 0;
  std::uint64_t u64 = 0;
  float f32 = 0;
  double f64 = 0;
  std::int32_t max32 = -5;
  std::int64_t max64 = -5;
  std::uint64_t cas = 0;
};

SIMT_KERNEL void CountInGlobal(Totals* totals) {
  AtomicAdd(&totals->i32, -1);
  AtomicAdd(&totals->u32, 1);
  AtomicAdd(&totals->u64, 3);
  AtomicAdd(&totals->f32, 0.5f);
  AtomicAdd(&totals->f64, 0.25);
  AtomicMax(&totals->max32, ThreadIndex());
  AtomicMax(&totals->max64, BlockIndex());
  std::uint64_t seen = 0;
  for (;;) {
    const std::uint64_t found = AtomicCas(&totals->cas, seen, seen + 1);
    if (found == seen) break;
    seen = found;
  }
}

TEST(Atomics, OfGlobalMemoryFromManyThreads) {
  const OptionsGuard options({.threads = 4});
  Totals totals;
  ASSERT_EQ(Emulate({.grid_x = 2000, .block = 64}, CountInGlobal, &totals), std::nullopt);
  EXPECT_EQ(totals.i32, -128000);
  EXPECT_EQ(totals.u32, 128000u);
  EXPECT_EQ(totals.u64, 384000u);
  EXPECT_EQ(totals.f32, 64000.0f);
  EXPECT_EQ(totals.f64, 32000.0);
  EXPECT_EQ(totals.max32, 63);
  EXPECT_EQ(totals.max64, 1999);
  EXPECT_EQ(totals.cas, 128000u);
}

SIMT_KERNEL void CopyVectors(BFloat16* out, const BFloat16* in) {
  Store(out + 8 * ThreadIndex(), Load<8>(in + 8 * ThreadIndex()));
  if (ThreadIndex() == 0) Store(out, Load(in));
}

TEST(Traffic, IsCounted) {
  alignas(16) BFloat16 in[256] = {};
  alignas(16) BFloat16 out[256] = {};
  const emulator::Traffic before = emulator::GetTraffic();
  ASSERT_EQ(Emulate({.block = 32}, CopyVectors, out, in), std::nullopt);
  const emulator::Traffic after = emulator::GetTraffic();
  EXPECT_EQ(after.bytes_read - before.bytes_read, 514u);
  EXPECT_EQ(after.bytes_written - before.bytes_written, 514u);
}

}  // namespace
}  // namespace infini_train::simt
