// One call of the SDK each, checked by its result: what mutations.py runs against wrong calls. Each
// test is run in a process of its own.

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/device/provider_flags.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/parallel/ccl.h"
#include "infini_train/parallel/thread_ranks.h"
#include "infini_train_maca/backend.h"

namespace infini_train {
namespace {

const Device kMaca(DeviceType::kPrivateUse1, 0);

DeviceGuardImpl& Guard() {
  return GetDeviceGuardImpl(DeviceType::kPrivateUse1);
}

/// Random numbers on the host in a dtype, and the same tensor on the device.
struct Operand {
  Operand(const Dims& shape, DataType dtype, unsigned seed) {
    std::vector<float> values(static_cast<std::size_t>(Numel(shape)));
    std::mt19937 engine(seed);
    for (float& value : values)
      value = static_cast<float>(static_cast<int>(engine() % 17) - 8);  // exact in every dtype
    host = Tensor::Empty(shape, dtype);
    Call<op::Copy>(host, Tensor::FromVector(values, shape));
    device = Upload(host);
  }

  static Tensor Upload(const Tensor& host, Device device = kMaca) {
    Tensor result = Tensor::Empty(host.shape(), host.dtype(), device);
    result.CopyFromHost(host.raw_data(), host.nbytes());
    return result;
  }

  Tensor host, device;
};

/// Both as float64.
std::vector<double> Values(const Tensor& tensor) {
  Tensor wide = Tensor::Empty(tensor.shape(), DataType::kFloat64, tensor.device());
  Call<op::Copy>(wide, tensor);
  return wide.ToVector<double>();
}

/// Products of every layout, and batches, are those of the CPU.
void CheckGemm(DataType dtype, DataType result) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const std::int64_t batch : {1, 3}) {
        constexpr std::int64_t kM = 5, kN = 7, kK = 11;
        const Operand a({batch, kM, kK}, dtype, 1), b({batch, kK, kN}, dtype, 2);
        const auto view = [&](const Tensor& t, std::int64_t rows, std::int64_t columns, bool turn) {
          // The same numbers, whose columns follow each other.
          return turn ? t.AsStrided({batch, rows, columns}, {rows * columns, 1, rows}, 0) : t;
        };
        Tensor expected = Tensor::Empty({batch, kM, kN}, result);
        Tensor found = Tensor::Empty({batch, kM, kN}, result, kMaca);
        Call<op::Gemm>(expected, view(a.host, kM, kK, transpose_a),
                       view(b.host, kK, kN, transpose_b), Tensor(), false);
        Call<op::Gemm>(found, view(a.device, kM, kK, transpose_a),
                       view(b.device, kK, kN, transpose_b), Tensor(), false);
        EXPECT_EQ(Values(found), Values(expected))
            << transpose_a << transpose_b << " batch " << batch;
      }
    }
  }
}

TEST(Gemm, Float32) {
  CheckGemm(DataType::kFloat32, DataType::kFloat32);
}
TEST(Gemm, Float64) {
  CheckGemm(DataType::kFloat64, DataType::kFloat64);
}
TEST(Gemm, BFloat16) {
  CheckGemm(DataType::kBFloat16, DataType::kBFloat16);
  CheckGemm(DataType::kBFloat16, DataType::kFloat32);
}

/// Before the first use of the device.
void TurnWorkaroundsOff() {
  for (const ProviderFlag& flag : ProviderFlags()) {
    if (flag.name == "maca_multithread_workarounds") *std::get<bool*>(flag.value) = false;
  }
}

TEST(Memory, CopiesGoTheRightWay) {
  TurnWorkaroundsOff();
  const std::vector<float> values = {1, 2, 3};
  EXPECT_EQ(Operand::Upload(Tensor::FromVector(values, {3})).ToVector<float>(), values);
}

TEST(Memory, PoolTellsItsPeaks) {
#ifndef INFINITRAIN_MACA_STANDIN
  GTEST_SKIP() << "whether the SDK's pools have peaks is not established";
#endif
  TurnWorkaroundsOff();
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  void* const first = Guard().Allocate(kBytes);
  void* const second = Guard().Allocate(kBytes);
  Guard().Free(second);
  Guard().SynchronizeDevice();
  maca::ResetMemoryPeaks(0);
  // The provider's own count takes both for the same; the pool takes memory in larger pieces.
  void* const odd = Guard().Allocate(3);
  const maca::MemoryPeaks peaks = maca::GetMemoryPeaks(0);
  EXPECT_GE(peaks.used, kBytes + 3);
  EXPECT_LT(peaks.used, 2 * kBytes);
  EXPECT_GT(peaks.reserved, peaks.used);
  Guard().Free(odd);
  Guard().Free(first);
}

TEST(Streams, AreMadeAndUsed) {
  const StreamHandle stream = Guard().CreateStream(0);
  Tensor x = Tensor::Empty({3}, DataType::kFloat32, kMaca);
  {
    const StreamGuard current(kMaca, stream);
    Call<op::Fill>(x, Scalar(2.0));
    EXPECT_EQ(x.ToVector<float>(), (std::vector<float>{2, 2, 2}));
  }
  Guard().DestroyStream(stream);
}

TEST(Policy, IsThereBeforeTheRuntimeStarts) {
  ::unsetenv("MACA_LAUNCH_BLOCKING");
  Tensor large = Tensor::Empty({1 << 22}, DataType::kFloat32, kMaca);
  const auto now = &std::chrono::steady_clock::now;
  Call<op::Fill>(large, Scalar(1.0));  // The first launch loads the kernel.
  Synchronize(kMaca);
  // As many launches as the clock tells from the rest.
  std::chrono::nanoseconds launching{0}, waiting{0};
  for (int launches = 1; launching + waiting < std::chrono::milliseconds(20); launches *= 2) {
    const auto start = now();
    for (int i = 0; i < launches; ++i)
      Call<op::Fill>(large, Scalar(1.0));
    const auto launched = now();
    Synchronize(kMaca);
    launching = launched - start;
    waiting = now() - launched;
  }
  // A launch that blocks has done the work.
  EXPECT_LT(waiting * 4, launching);
}

TEST(Kernel, GroupsOfLanesSumAlone) {
  if (Guard().Properties(0).warp_size == 32) GTEST_SKIP() << "a warp of 32 lanes is one group";
  const Operand x({64, 40}, DataType::kFloat32, 3);
  Tensor expected = Tensor::EmptyLike(x.host);
  Tensor found = Tensor::EmptyLike(x.device);
  Call<op::Softmax>(expected, x.host);
  Call<op::Softmax>(found, x.device);
  const std::vector<double> wanted = Values(expected), got = Values(found);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(got[i], wanted[i], 1e-6) << i;
}

TEST(Ccl, ReducesAndBroadcasts) {
  ::setenv("INFINI_RT_CPU_DEVICES", "2", /*overwrite=*/0);  // of the stand-in over the emulator
  if (Guard().DeviceCount() < 2) GTEST_SKIP() << "two ranks need as many devices";
  const std::vector<Device> devices = {kMaca, Device(DeviceType::kPrivateUse1, 1)};
  parallel::RunThreadRanks(devices, [](parallel::ParallelContext& context) {
    parallel::Communicator& communicator = *context.world();
    const auto rank = static_cast<float>(communicator.rank());
    const auto tensor = [&](DataType dtype) {
      Tensor host = Tensor::Empty({3}, dtype);
      Call<op::Copy>(host, Tensor::FromVector<float>({rank + 1, 4 - rank, 0.5f}, {3}));
      return Operand::Upload(host, communicator.device());
    };
    const Tensor sums = tensor(DataType::kBFloat16);
    communicator.AllReduce(sums);
    EXPECT_EQ(Values(sums), (std::vector<double>{3, 7, 1}));
    const Tensor least = tensor(DataType::kFloat32);
    communicator.AllReduce(least, parallel::ReduceOp::kMin);
    EXPECT_EQ(Values(least), (std::vector<double>{1, 3, 0.5}));
    const Tensor broadcast = tensor(DataType::kFloat32);
    communicator.Broadcast(broadcast, 1);
    EXPECT_EQ(Values(broadcast), (std::vector<double>{2, 3, 0.5}));
  });
}

}  // namespace
}  // namespace infini_train
