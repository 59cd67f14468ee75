// Launches on streams of InfiniRT's CPU: geometry, order, graphs, and what a device fault does.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infini/rt/cpu/runtime.h>

#include "backends/simt/emulator/fault.h"
#include "infini_train/core/error.h"
#include "tests/simt/emulated.h"

namespace infini_train::simt {
namespace {

namespace rt = infini::rt::runtime;
using Cpu = rt::Runtime<infini::rt::Device::Type::kCpu>;
using testing::AllOf;
using testing::HasSubstr;
using testing::Optional;
using testing::ThrowsMessage;

class Launches : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(Cpu::StreamCreate(&stream_), rt::kSuccess); }
  void TearDown() override { Cpu::StreamDestroy(stream_); }

  Context context() const { return Context(Device(DeviceType::kPrivateUse1), stream_); }
  void Synchronize() { ASSERT_EQ(Cpu::StreamSynchronize(stream_), rt::kSuccess); }

  rt::Stream stream_ = nullptr;
};

template <typename T>
SIMT_KERNEL void Scale(T* out, const T* in, T factor, std::int64_t n) {
  for (std::int64_t i = GlobalThreadIndex(); i < n; i += GlobalThreadCount())
    Store(out + i, FromCompute<T>(ToCompute(Load(in + i)) * ToCompute(factor)));
}

TEST_F(Launches, CoverEveryElement) {
  for (std::int64_t n : {1, 255, 256, 257, 10000}) {
    std::vector<float> in(n), out(n + 1, -1.0f);
    std::iota(in.begin(), in.end(), 0.0f);
    Launch(context(), Linear(n), Scale<float>, out.data(), in.data(), 2, n);
    Synchronize();
    for (std::int64_t i = 0; i < n; ++i)
      ASSERT_EQ(out[i], 2.0f * i);
    EXPECT_EQ(out[n], -1.0f);
  }
}

/// Where on its stack each lane is.
template <bool kWaits>
SIMT_KERNEL void FrameAddress(std::uintptr_t* out) {
  if (kWaits) SyncBlock();
  Store(out + ThreadIndex(), reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)));
}

TEST_F(Launches, TakeFibersOnlyWhereLanesWait) {
  constexpr int kLanes = 256;
  const auto stacks = [&](void (*kernel)(std::uintptr_t*)) {
    std::vector<std::uintptr_t> frames(kLanes);
    Launch(context(), {.block = kLanes}, kernel, frames.data());
    Synchronize();
    return std::set<std::uintptr_t>(frames.begin(), frames.end()).size();
  };
  EXPECT_EQ(stacks(&FrameAddress<false>), 1u) << "lanes that need not wait share one stack";
  EXPECT_EQ(stacks(&FrameAddress<true>), kLanes);
}

TEST_F(Launches, TakeHalfTypes) {
  const BFloat16 in[2] = {BFloat16(1.5f), BFloat16(-2.0f)};
  BFloat16 out[2];
  Launch(context(), Linear(2), Scale<BFloat16>, out, in, 3.0f, 2);
  Synchronize();
  EXPECT_EQ(static_cast<float>(out[0]), 4.5f);
  EXPECT_EQ(static_cast<float>(out[1]), -6.0f);
}

SIMT_KERNEL void MustNotRun(int* touched) {
  *touched = 1;
}

TEST_F(Launches, OfAnEmptyGridDoNothing) {
  int touched = 0;
  Launch(context(), Linear(0), MustNotRun, &touched);
  Launch(context(), Rows(0, 64), MustNotRun, &touched);
  Launch(context(), {.grid_x = 4, .grid_y = 0}, MustNotRun, &touched);
  Launch(context(), {.grid_z = 0}, MustNotRun, &touched);
  Synchronize();
  EXPECT_EQ(touched, 0);
}

TEST_F(Launches, RefuseBadGeometry) {
  int touched = 0;
  const auto launch = [&](const Geometry& geometry) {
    return [&, geometry] { Launch(context(), geometry, MustNotRun, &touched); };
  };
  EXPECT_THAT(
      launch({.block = 1025}),
      ThrowsMessage<Error>("launch of a kernel: expected a block from 1 to 1024, found 1025"));
  EXPECT_THAT(launch({.block = 0}), ThrowsMessage<Error>(HasSubstr("found 0")));
  EXPECT_THAT(launch({.grid_x = kMaxGridX + 1}), ThrowsMessage<Error>(HasSubstr("grid_x")));
  EXPECT_THAT(launch({.grid_y = kMaxGridYZ + 1}), ThrowsMessage<Error>(HasSubstr("grid_y")));
  EXPECT_THAT(launch({.grid_z = -1}), ThrowsMessage<Error>(HasSubstr("grid_z")));
  EXPECT_THAT(launch({.dynamic_shared_bytes = MaxDynamicSharedBytes(context()) + 4096}),
              ThrowsMessage<Error>(HasSubstr("dynamic_shared_bytes")));
  Synchronize();
  EXPECT_EQ(touched, 0);
}

TEST(Geometry, IsClampedToTheDevice) {
  EXPECT_EQ(Linear(1000).grid_x, 4);
  EXPECT_EQ(Linear(1024, 4, 128).grid_x, 2);
  EXPECT_EQ(Linear(1025, 4, 128).grid_x, 3);
  EXPECT_EQ(Linear(std::int64_t{1} << 40).grid_x, kMaxGridX);
  EXPECT_EQ(Rows(kMaxGridX + 5, 64).grid_x, kMaxGridX);
  EXPECT_EQ(Rows(7, 64).grid_x, 7);
  EXPECT_EQ(Rows(7, 64).block, 64);
}

TEST(Geometry, VectorWidthSuitsPointersAndExtents) {
  alignas(16) float floats[8];
  alignas(16) BFloat16 halves[16];
  EXPECT_EQ(VectorWidth(floats, 8), 4);
  EXPECT_EQ(VectorWidth(halves, 16), 8);
  EXPECT_EQ(VectorWidth(floats, halves, 8), 4);
  EXPECT_EQ(VectorWidth(floats + 1, 8), 1);
  EXPECT_EQ(VectorWidth(floats + 2, 8), 2);
  EXPECT_EQ(VectorWidth(floats, std::int64_t{6}), 2);
  EXPECT_EQ(VectorWidth(floats, 7), 1);
  int picked = 0;
  DispatchWidth<8, 4, 1>(5, [&](auto n) { picked = n; });
  EXPECT_EQ(picked, 4);
  DispatchWidth<8, 4, 1>(2, [&](auto n) { picked = n; });
  EXPECT_EQ(picked, 1);
}

SIMT_KERNEL void MarkBlock(std::uint8_t* marks) {
  const std::int64_t block =
      (BlockIndexZ() * GridSizeY() + BlockIndexY()) * GridSize() + BlockIndex();
  if (ThreadIndex() == BlockSize() - 1) ++marks[block];
}

TEST_F(Launches, RunEveryBlockOnce) {
  const OptionsGuard options({.threads = 3});
  for (const Geometry& geometry : {Geometry{.grid_x = 65535, .block = 2},
                                   Geometry{.grid_x = 7, .grid_y = 11, .grid_z = 13, .block = 3},
                                   Geometry{.grid_x = 1, .grid_y = 65535, .block = 1}}) {
    std::vector<std::uint8_t> marks(geometry.grid_x * geometry.grid_y * geometry.grid_z);
    Launch(context(), geometry, MarkBlock, marks.data());
    Synchronize();
    EXPECT_EQ(std::count(marks.begin(), marks.end(), 1), static_cast<std::ptrdiff_t>(marks.size()));
  }
}

struct Table {
  std::int32_t values[1022];
};
SIMT_KERNEL void SumTable(Table table, std::int64_t* sum) {
  std::int64_t total = 0;
  for (std::int32_t value : table.values)
    total += value;
  *sum = total;
}

TEST_F(Launches, CarryFourKilobytesOfArguments) {
  static_assert(sizeof(Table) + sizeof(std::int64_t*) == kMaxArgumentBytes);
  std::int64_t sum = 0;
  {
    Table table;
    std::iota(std::begin(table.values), std::end(table.values), 0);
    Launch(context(), {.block = 1}, SumTable, table, &sum);
    table = {};  // The launch has a copy.
  }
  Synchronize();
  EXPECT_EQ(sum, 1021 * 1022 / 2);
}

SIMT_KERNEL void Append(std::int64_t* value, std::int64_t digit) {
  SyncBlock();
  if (ThreadIndex() == 0) *value = *value * 3 + digit;
}

TEST_F(Launches, RunInOrderOfTheirStream) {
  std::int64_t value = 0, expected = 0;
  for (int i = 0; i < 30; ++i) {
    Launch(context(), {.block = 32}, Append, &value, i % 3);
    expected = expected * 3 + i % 3;
  }
  Synchronize();
  EXPECT_EQ(value, expected);
}

TEST_F(Launches, WaitForEventsOfOtherStreams) {
  rt::Stream other = nullptr;
  rt::Event event = nullptr;
  ASSERT_EQ(Cpu::StreamCreate(&other), rt::kSuccess);
  ASSERT_EQ(Cpu::EventCreate(&event), rt::kSuccess);
  for (int i = 0; i < 50; ++i) {
    std::int64_t value = 1;
    Launch(context(), {.block = 32}, Append, &value, 1);
    ASSERT_EQ(Cpu::EventRecord(event, stream_), rt::kSuccess);
    ASSERT_EQ(Cpu::StreamWaitEvent(other, event, 0), rt::kSuccess);
    Launch(Context(Device(DeviceType::kPrivateUse1), other), {.block = 32}, Append, &value, 2);
    ASSERT_EQ(Cpu::StreamSynchronize(other), rt::kSuccess);
    ASSERT_EQ(value, (1 * 3 + 1) * 3 + 2);
  }
  Cpu::EventDestroy(event);
  Cpu::StreamDestroy(other);
}

TEST_F(Launches, AreCapturedAndReplayed) {
  std::int64_t value = 0;
  rt::Graph graph = nullptr;
  rt::GraphExec executable = nullptr;
  ASSERT_EQ(Cpu::StreamBeginCapture(stream_, rt::kStreamCaptureModeGlobal), rt::kSuccess);
  Launch(context(), {.block = 64}, Append, &value, 1);
  Launch(context(), {.block = 64}, Append, &value, 2);
  ASSERT_EQ(Cpu::StreamEndCapture(stream_, &graph), rt::kSuccess);
  EXPECT_EQ(value, 0);
  ASSERT_EQ(Cpu::GraphInstantiate(&executable, graph, 0), rt::kSuccess);
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(Cpu::GraphLaunch(executable, stream_), rt::kSuccess);
  Synchronize();
  EXPECT_EQ(value, ((1 * 3 + 2) * 3 + 1) * 3 + 2);
  Cpu::GraphExecDestroy(executable);
  Cpu::GraphDestroy(graph);
}

SIMT_KERNEL void Diverge() {
  if (ThreadIndex() < 32) SyncBlock();
}

/// Faults stay with the process, so a process of its own has one.
[[noreturn]] void FaultAndExit() {
  const Context context(Device(DeviceType::kPrivateUse1), nullptr, OpId::kGelu);
  int untouched = 0;
  Launch(context, {.block = 64}, Diverge);
  const bool failed = Cpu::DeviceSynchronize() == rt::kErrorLaunchFailure;
  try {
    Launch(context, {.block = 64}, MustNotRun, &untouched);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(failed && untouched == 0 && error.what() == emulator::FaultMessage() ? 3 : 4);
  }
  std::_Exit(5);
}

TEST(DeviceFaultDeathTest, StaysAndBecomesTheErrorOfTheNextLaunch) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(FaultAndExit(), testing::ExitedWithCode(3),
              "device fault in Gelu: deadlock: lanes 0-31 wait in SyncBlock at "
              "simt/launch_test.cc:[0-9]+, lanes 32-63 have returned \\[Diverge, block");
}

[[noreturn]] void ReadOptions(const char* name, const char* value) {
  setenv(name, value, 1);
  try {
    emulator::GetOptions();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(3);
  }
  std::_Exit(emulator::GetOptions().warp_size);
}

TEST(OptionsDeathTest, ComeFromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ReadOptions("INFINITRAIN_SIM_WARP_SIZE", "64"), testing::ExitedWithCode(64), "");
  EXPECT_EXIT(ReadOptions("INFINITRAIN_SIM_WARP_SIZE", "32"), testing::ExitedWithCode(32), "");
  EXPECT_EXIT(ReadOptions("INFINITRAIN_SIM_WARP_SIZE", "48"), testing::ExitedWithCode(3),
              "INFINITRAIN_SIM_WARP_SIZE: expected 32 or 64, found '48'");
  EXPECT_EXIT(ReadOptions("INFINITRAIN_SIM_CHECK", "race,momery"), testing::ExitedWithCode(3),
              "INFINITRAIN_SIM_CHECK: expected a list of 'race' and 'memory', found 'momery'");
  EXPECT_EXIT(ReadOptions("INFINITRAIN_SIM_THREADS", "0"), testing::ExitedWithCode(3),
              "INFINITRAIN_SIM_THREADS: expected an integer from 1 to 256, got '0'");
}

}  // namespace
}  // namespace infini_train::simt
