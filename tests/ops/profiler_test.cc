#include "infini_train/ops/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/device/private_use1.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/fallback.h"
#include "tests/core/child_process.h"
#include "tests/core/mock_provider.h"

namespace infini_train {
namespace {

using test::InChildProcess;
using test::MockRuntime;

const Device kMock(DeviceType::kPrivateUse1, 1);

void NegKernel(const KernelContext&, Tensor&, const Tensor&) {
  MockRuntime::ranges += "kernel";
}

std::string RangesOf(OpId id) {
  const Tensor x = Tensor::Empty({1}, DataType::kFloat32, kMock);
  Tensor out = Tensor::EmptyLike(x);
  MockRuntime::ranges.clear();
  if (id == OpId::kNeg) {
    Call<op::Neg>(out, x);
  } else {
    Call<op::Fill>(out, 1);
    EXPECT_EQ(out.Item(), 1);
  }
  return std::exchange(MockRuntime::ranges, "");
}

TEST(ProfilerRanges, SurroundKernelsAndFallbacksWhileTheyAreOn) {
  InChildProcess([] {
    test::RegisterMockProvider();
    SetFallbackMode(FallbackMode::kSilent);
    const detail::KernelRegistrar<op::Neg, &NegKernel> neg(DeviceType::kPrivateUse1, "neg.cc", 1);
    EXPECT_EQ(RangesOf(OpId::kNeg), "kernel");
    EXPECT_EQ(RangesOf(OpId::kFill), "");
    SetProfilerRanges(true);
    EXPECT_EQ(RangesOf(OpId::kNeg), "+Negkernel-");
    EXPECT_EQ(RangesOf(OpId::kFill), "+Fill-");
    { const ProfilerRange range(kMock, "step"); }
    EXPECT_EQ(MockRuntime::ranges, "+step-");
    EXPECT_TRUE(HasKernel(DeviceType::kPrivateUse1, OpId::kNeg));
    EXPECT_FALSE(HasKernel(DeviceType::kPrivateUse1, OpId::kFill));
    SetProfilerRanges(false);
    EXPECT_EQ(RangesOf(OpId::kNeg), "kernel");
    { const ProfilerRange range(kMock, "step"); }
    EXPECT_EQ(MockRuntime::ranges, "");
  });
}

TEST(ProfilerRanges, TakeKernelsThatRegisterLater) {
  InChildProcess([] {
    test::RegisterMockProvider();
    SetProfilerRanges(true);
    const detail::KernelRegistrar<op::Neg, &NegKernel> neg(DeviceType::kPrivateUse1, "neg.cc", 1);
    EXPECT_EQ(RangesOf(OpId::kNeg), "+Negkernel-");
  });
}

TEST(AutocastDefault, IsTheProvidersOrBFloat16) {
  EXPECT_EQ(autocast::DefaultDataType(Device()), DataType::kBFloat16);
  InChildProcess([] {
    core::RegisterPrivateUse1Backend({"half", DataType::kFloat16});
    EXPECT_EQ(autocast::DefaultDataType(kMock), DataType::kFloat16);
    EXPECT_ERROR(Autocast(kMock), "expected bfloat16, got float16");
  });
  InChildProcess([] {
    core::RegisterPrivateUse1Backend({"mock", DataType::kBFloat16});
    const Autocast mixed(kMock);
    EXPECT_EQ(autocast::ComputeDataType(), DataType::kBFloat16);
  });
}

}  // namespace
}  // namespace infini_train
