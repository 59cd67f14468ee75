#include "infini_train/ops/kernel_library.h"

#include <gtest/gtest.h>

namespace infini_train {
namespace {

std::string Version() {
  return "library 1.2.3";
}

REGISTER_KERNEL_LIBRARY(kPrivateUse1, Gemm, &Version);

TEST(KernelLibraryTest, NamesWhatWasRegisteredForOneDeviceAndOp) {
  EXPECT_EQ(KernelLibrary(DeviceType::kPrivateUse1, OpId::kGemm), "library 1.2.3");
  EXPECT_EQ(KernelLibrary(DeviceType::kPrivateUse1, OpId::kAdd), "");
  EXPECT_EQ(KernelLibrary(DeviceType::kCPU, OpId::kGemm), "");
}

}  // namespace
}  // namespace infini_train
