#include <infini/rt.h>
#include <infini/rt/cpu/runtime.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include <gtest/gtest.h>

namespace infini::rt::runtime {
namespace {

using Cpu = Runtime<Device::Type::kCpu>;

struct ScaleArgs {
  float* data;
  std::size_t count;
  float factor;
};

Error Scale(const void* args) {
  const auto& scale = *static_cast<const ScaleArgs*>(args);
  for (std::size_t i = 0; i < scale.count; ++i)
    scale.data[i] *= scale.factor;
  return kSuccess;
}

struct BigArgs {
  std::uint64_t* sum;
  std::array<std::uint64_t, 100> values;
};

Error Sum(const void* args) {
  const auto& big = *static_cast<const BigArgs*>(args);
  *big.sum += std::accumulate(big.values.begin(), big.values.end(), std::uint64_t{0});
  return kSuccess;
}

class CpuKernel : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(Cpu::StreamCreate(&stream_), kSuccess); }
  void TearDown() override { EXPECT_EQ(Cpu::StreamDestroy(stream_), kSuccess); }
  Stream stream_ = nullptr;
};

TEST_F(CpuKernel, RunsInStreamOrderWithACopyOfItsArguments) {
  void* ptr = nullptr;
  ASSERT_EQ(Cpu::Malloc(&ptr, 4 * sizeof(float)), kSuccess);
  float host[4] = {1, 2, 3, 4};
  ASSERT_EQ(Cpu::MemcpyAsync(ptr, host, sizeof(host), kMemcpyHostToDevice, stream_), kSuccess);
  for (float factor : {2.0f, 5.0f}) {
    ScaleArgs args{static_cast<float*>(ptr), 4, factor};
    ASSERT_EQ(Cpu::LaunchKernel(Scale, &args, sizeof(args), stream_), kSuccess);
    args = {};
  }
  ASSERT_EQ(Cpu::MemcpyAsync(host, ptr, sizeof(host), kMemcpyDeviceToHost, stream_), kSuccess);
  EXPECT_EQ(host[3], 40.0f);
  EXPECT_EQ(Cpu::Free(ptr), kSuccess);
}

TEST_F(CpuKernel, BigArgumentsAreCopiedToo) {
  std::uint64_t sum = 0;
  BigArgs args{&sum, {}};
  args.values.fill(3);
  ASSERT_EQ(Cpu::LaunchKernel(Sum, &args, sizeof(args), stream_), kSuccess);
  args.values.fill(0);
  ASSERT_EQ(Cpu::StreamSynchronize(stream_), kSuccess);
  EXPECT_EQ(sum, 300u);
}

TEST_F(CpuKernel, IsAGraphNode) {
  std::uint64_t sum = 0;
  BigArgs args{&sum, {}};
  args.values.fill(1);
  ASSERT_EQ(Cpu::StreamBeginCapture(stream_, kStreamCaptureModeGlobal), kSuccess);
  ASSERT_EQ(Cpu::LaunchKernel(Sum, &args, sizeof(args), stream_), kSuccess);
  Graph graph = nullptr;
  GraphExec exec = nullptr;
  ASSERT_EQ(Cpu::StreamEndCapture(stream_, &graph), kSuccess);
  ASSERT_EQ(Cpu::GraphInstantiate(&exec, graph, 0), kSuccess);
  for (int i = 0; i < 5; ++i)
    ASSERT_EQ(Cpu::GraphLaunch(exec, stream_), kSuccess);
  ASSERT_EQ(Cpu::StreamSynchronize(stream_), kSuccess);
  EXPECT_EQ(sum, 500u);
  EXPECT_EQ(Cpu::GraphDestroy(graph), kSuccess);
  EXPECT_EQ(Cpu::GraphDestroy(graph), kErrorInvalidValue);
  EXPECT_EQ(Cpu::GraphExecDestroy(exec), kSuccess);
}

TEST_F(CpuKernel, BadArguments) {
  EXPECT_EQ(Cpu::LaunchKernel(nullptr, nullptr, 0, stream_), kErrorInvalidValue);
  EXPECT_EQ(Cpu::LaunchKernel(Scale, nullptr, 8, stream_), kErrorInvalidValue);
  Cpu::GetLastError();
}

TEST_F(CpuKernel, CallsInsideAHostFunctionAreNotPermitted) {
  Error inside = kSuccess;
  auto call = [](void* data) {
    void* ptr = nullptr;
    *static_cast<Error*>(data) = Cpu::Malloc(&ptr, 64);
  };
  ASSERT_EQ(Cpu::LaunchHostFunc(stream_, call, &inside), kSuccess);
  ASSERT_EQ(Cpu::StreamSynchronize(stream_), kSuccess);
  EXPECT_EQ(inside, kErrorNotPermitted);
}

// A failing kernel ends the usefulness of the process, as on CUDA; hence in a process of its own.
TEST(CpuFault, IsSticky) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        auto fault = [](const void*) { return kErrorIllegalAddress; };
        Stream stream = nullptr;
        void* ptr = nullptr;
        bool good = Cpu::StreamCreate(&stream) == kSuccess;
        good = good && Cpu::Malloc(&ptr, 64) == kSuccess;
        good = good && Cpu::LaunchKernel(fault, nullptr, 0, stream) == kSuccess;
        int ran = 0;
        Error queued = Cpu::LaunchHostFunc(
            stream, [](void* data) { *static_cast<int*>(data) = 1; }, &ran);
        good = good && (queued == kSuccess || queued == kErrorIllegalAddress);
        if (good && queued == kSuccess) {
          good = Cpu::StreamSynchronize(stream) == kErrorIllegalAddress;
        }
        while (Cpu::PeekAtLastError() != kErrorIllegalAddress) {
        }
        good = good && ran == 0;  // skipped, the context is in error
        good = good && Cpu::GetLastError() == kErrorIllegalAddress;
        good = good && Cpu::GetLastError() == kErrorIllegalAddress;
        good = good && Cpu::Malloc(&ptr, 64) == kErrorIllegalAddress;
        good = good && Cpu::DeviceSynchronize() == kErrorIllegalAddress;
        std::exit(good ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace infini::rt::runtime
