#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <infini/rt/cpu/runtime.h>

#include "backends/simt/dialect.h"

namespace infini_train::simt {
namespace {

template <typename T>
SIMT_KERNEL void Scale(T* out, const T* in, T factor, std::int64_t n) {
  for (std::int64_t i = GlobalThreadIndex(); i < n; i += GlobalThreadCount())
    Store(out + i, Load(in + i) * factor);
}

SIMT_KERNEL void SumRows(float* out, const float* in, std::int64_t columns) {
  float sum = 0;
  for (std::int64_t i = ThreadIndex(); i < columns; i += BlockSize())
    sum += Load(in + BlockIndex() * columns + i);
  sum = ReduceBlock(sum, SumOp{}, 0.0f);
  if (ThreadIndex() == 0) Store(out + BlockIndex(), sum);
}

using Cpu = infini::rt::runtime::Runtime<infini::rt::Device::Type::kCpu>;

TEST(Launch, Works) {
  std::vector<float> in(1000), out(1000);
  std::iota(in.begin(), in.end(), 0.0f);
  const Context context(Device(DeviceType::kPrivateUse1, 0), nullptr);
  Launch(context, Linear(1000), Scale<float>, out.data(), in.data(), 2, 1000);
  ASSERT_EQ(Cpu::DeviceSynchronize(), infini::rt::runtime::kSuccess);
  for (int i = 0; i < 1000; ++i)
    ASSERT_EQ(out[i], 2.0f * i);
}

TEST(Launch, Reduces) {
  std::vector<float> in(1000), out(10);
  std::iota(in.begin(), in.end(), 0.0f);
  const Context context(Device(DeviceType::kPrivateUse1, 0), nullptr);
  Launch(context, Rows(10, 128), SumRows, out.data(), in.data(), 100);
  ASSERT_EQ(Cpu::DeviceSynchronize(), infini::rt::runtime::kSuccess);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(out[i], 100.0f * i * 100 + 4950.0f);
}

}  // namespace
}  // namespace infini_train::simt
