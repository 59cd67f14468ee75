#include "infini_train/ops/op_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <vector>

#include "infini_train/core/error.h"
#include "tests/common/device_test.h"

namespace infini_train::test {
namespace {

class OpRecorderTest : public DeviceTest {
 protected:
  static Tensor Make(const Dims& shape) {
    Tensor tensor = Tensor::Empty(shape, DataType::kFloat32, device());
    Call<op::Fill>(tensor, 1);
    return tensor;
  }
  /// The calls on the profiled device, without those of CPU kernels inside of fallbacks.
  static std::vector<OpRecord> CallsOnDevice(const OpProfile& profile) {
    std::vector<OpRecord> calls;
    std::copy_if(profile.ops.begin(), profile.ops.end(), std::back_inserter(calls),
                 [&](const OpRecord& record) { return record.device == profile.device; });
    return calls;
  }
  static detail::AnyKernel Called(OpId id) { return detail::FindKernel(device().type(), id); }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(OpRecorderTest);

TEST_P(OpRecorderTest, TheCallsOfAStepAreRecordedInTheirOrder) {
  const Tensor a = Make({96, 64});
  const Tensor b = Make({64, 32});
  Tensor out = Make({96, 32});
  OpRecorder recorder(device());
  for (const std::int64_t number : {7, 8}) {
    recorder.BeginStep(number);
    Call<op::Gemm>(out, a, b, Tensor(), false);
    Call<op::Neg>(out, out);
    recorder.EndStep();
  }
  const OpProfile profile = recorder.Take();
  EXPECT_EQ(profile.device, device());
  ASSERT_EQ(profile.steps.size(), 2u);
  EXPECT_EQ(profile.steps[0].number, 7);
  EXPECT_EQ(profile.steps[1].number, 8);
  const std::vector<OpRecord> ops = CallsOnDevice(profile);
  ASSERT_EQ(ops.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const OpRecord& record = ops[i];
    const StepRecord& step = profile.steps[i / 2];
    EXPECT_EQ(record.op, i % 2 == 0 ? OpId::kGemm : OpId::kNeg);
    EXPECT_EQ(record.device, device());
    EXPECT_EQ(record.parent, -1);
    EXPECT_EQ(record.thread, 0);
    EXPECT_GE(record.duration, 0.0);
    EXPECT_GE(record.host_duration, 0.0);
    // Events are read with half a microsecond's precision.
    EXPECT_GE(record.begin, step.begin - 1.0);
    EXPECT_LE(record.begin + record.duration, step.begin + step.duration + 2.0);
  }
  EXPECT_GT(profile.steps[1].begin, profile.steps[0].begin);
  EXPECT_GE(ops[1].begin, ops[0].begin + ops[0].duration - 1.0);
  EXPECT_EQ(ops[0].tensors, "float32 [96, 32], [96, 64], [64, 32]");
  EXPECT_EQ(ops[0].cost.flops, 2.0 * 96 * 64 * 32);
  EXPECT_EQ(ops[1].cost.bytes, 2.0 * 96 * 32 * 4);
  EXPECT_TRUE(recorder.Take().ops.empty());
}

TEST_P(OpRecorderTest, OutsideOfStepsCallsGoStraightToTheKernels) {
  Tensor x = Make({4});
  const detail::AnyKernel kernel = Called(OpId::kNeg);
  ASSERT_EQ(kernel != nullptr, HasKernel(device().type(), OpId::kNeg));
  OpRecorder recorder(device());
  EXPECT_EQ(Called(OpId::kNeg), kernel);
  EXPECT_FALSE(IsRecordingOps());
  recorder.BeginStep(1);
  EXPECT_TRUE(IsRecordingOps());
  if (kernel != nullptr) {
    EXPECT_NE(Called(OpId::kNeg), kernel);
  }
  Call<op::Neg>(x, x);
  recorder.EndStep();
  EXPECT_EQ(Called(OpId::kNeg), kernel);
  EXPECT_FALSE(IsRecordingOps());
  Call<op::Neg>(x, x);
  EXPECT_EQ(CallsOnDevice(recorder.Take()).size(), 1u);
}

TEST_P(OpRecorderTest, AStepThatFailsEndsWithItsRecorder) {
  const detail::AnyKernel kernel = Called(OpId::kNeg);
  {
    OpRecorder recorder(device());
    recorder.BeginStep(1);
    Make({4});
    EXPECT_THROW(recorder.Take(), Error);
    EXPECT_THROW(OpRecorder(device()).BeginStep(1), Error) << "one step at a time";
  }
  EXPECT_FALSE(IsRecordingOps());
  EXPECT_EQ(Called(OpId::kNeg), kernel);
  OpRecorder recorder(device());
  EXPECT_THROW(recorder.EndStep(), Error);
  recorder.BeginStep(1);
  recorder.EndStep();
  EXPECT_EQ(recorder.Take().steps.size(), 1u);
}

TEST_P(OpRecorderTest, ThreadsAreToldApart) {
  OpRecorder recorder(device());
  recorder.BeginStep(1);
  Make({4});
  std::thread([] { Make({8}); }).join();
  Make({4});
  recorder.EndStep();
  const std::vector<OpRecord> ops = CallsOnDevice(recorder.Take());
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_EQ(ops[0].thread, 0);
  EXPECT_EQ(ops[1].thread, 1);
  EXPECT_EQ(ops[2].thread, 0);
  for (const OpRecord& record : ops)
    EXPECT_EQ(record.parent, -1);
}

TEST_P(OpRecorderTest, CallsInsideOfCallsAreTheirChildren) {
  const std::int64_t n = 24;
  Tensor loss = Make({});
  Tensor grad_hidden = Make({n, 16});
  Tensor grad_weight = Make({40, 16});
  const Tensor hidden = Make({n, 16});
  const Tensor weight = Make({40, 16});
  Tensor targets = Tensor::Empty({n}, DataType::kInt64, device());
  Call<op::Fill>(targets, 3);
  OpRecorder recorder(device());
  recorder.BeginStep(1);
  Call<op::LinearCrossEntropy>(loss, grad_hidden, grad_weight, hidden, weight, targets, -100, 1.0);
  recorder.EndStep();
  const OpProfile profile = recorder.Take();
  ASSERT_FALSE(profile.ops.empty());
  EXPECT_EQ(profile.ops[0].op, OpId::kLinearCrossEntropy);
  EXPECT_EQ(profile.ops[0].cost.flops, 3 * 2.0 * n * 16 * 40);
  // The emulated accelerator's kernel is made of others; elsewhere it is the provider's affair.
  if (device().type() == DeviceType::kPrivateUse1) {
    EXPECT_GT(profile.ops.size(), 1u);
  }
  for (std::size_t i = 1; i < profile.ops.size(); ++i) {
    const OpRecord& child = profile.ops[i];
    ASSERT_GE(child.parent, 0);
    ASSERT_LT(child.parent, static_cast<int>(i));
    const OpRecord& parent = profile.ops[static_cast<std::size_t>(child.parent)];
    EXPECT_GE(child.host_begin, parent.host_begin);
    EXPECT_LE(child.host_begin + child.host_duration, parent.host_begin + parent.host_duration);
    if (child.device != parent.device) continue;
    EXPECT_GE(child.begin, parent.begin - 1.0);
    EXPECT_LE(child.begin + child.duration, parent.begin + parent.duration + 2.0);
  }
}

}  // namespace
}  // namespace infini_train::test
