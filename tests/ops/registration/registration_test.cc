// Linked with the registering files of this folder in one order and in the reverse.

#include <gtest/gtest.h>

#include "infini_train/ops/dispatch.h"
#include "tests/core/mock_provider.h"
#include "tests/ops/registration/order.h"

namespace infini_train {
namespace {

TEST(Registration, HoldsInAnyOrderAndStartsNoDevice) {
  EXPECT_EQ(test::RegistrationOrder(), INFINI_TRAIN_REGISTRATION_ORDER);
  EXPECT_EQ(test::MockRuntime::constructed, 0);
  EXPECT_TRUE(HasKernel(DeviceType::kPrivateUse1, OpId::kFill));
  EXPECT_FALSE(HasKernel(DeviceType::kPrivateUse1, OpId::kNeg));
  Tensor out = Tensor::Empty({1}, DataType::kFloat32, Device::Parse("mock:1"));
  Call<op::Fill>(out, 0);
  EXPECT_EQ(out.Item(), 42);
  EXPECT_EQ(test::MockRuntime::constructed, 1);
}

}  // namespace
}  // namespace infini_train
