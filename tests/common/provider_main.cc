// Runs the shared suites on the devices of the accelerator that is linked.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "infini_train/core/device/device_guard.h"
#include "tests/common/device_test.h"

int main(int argc, char** argv) {
  using infini_train::DeviceType;
  DeviceType type = DeviceType::kPrivateUse1;
  if (!infini_train::HasDeviceGuardImpl(type)) type = DeviceType::kCUDA;
  if (!infini_train::HasDeviceGuardImpl(type)) {
    std::fputs("no accelerator is linked: TARGET must be the provider's whole archive\n", stderr);
    return EXIT_FAILURE;
  }
  const char* index = std::getenv("INFINI_TRAIN_TEST_DEVICE_INDEX");
  infini_train::test::SetDeviceUnderTest({type, index == nullptr ? 0 : std::atoi(index)});
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0 &&
      !testing::GTEST_FLAG(list_tests)) {
    std::fputs("no test has this name\n", stderr);
    return EXIT_FAILURE;
  }
  return status;
}
