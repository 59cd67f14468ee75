// Runs the shared suites on the devices of the accelerator that is linked.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/device/provider_flags.h"
#include "tests/common/device_test.h"

/// Sets the provider's flags that INFINI_TRAIN_TEST_PROVIDER_FLAGS lists, "name=true,other=false".
/// False for one that it does not have.
static bool SetProviderFlags() {
  const char* const list = std::getenv("INFINI_TRAIN_TEST_PROVIDER_FLAGS");
  std::string_view text = list == nullptr ? "" : list;
  while (!text.empty()) {
    const std::string_view setting = text.substr(0, text.find(','));
    text.remove_prefix(setting.size() + (setting.size() < text.size()));
    bool found = false;
    for (const infini_train::ProviderFlag& flag : infini_train::ProviderFlags()) {
      bool* const* const value = std::get_if<bool*>(&flag.value);
      if (value == nullptr || setting.substr(0, setting.find('=')) != flag.name) continue;
      **value = setting.ends_with("=true");
      found = true;
    }
    if (!found) return false;
  }
  return true;
}

int main(int argc, char** argv) {
  using infini_train::DeviceType;
  DeviceType type = DeviceType::kPrivateUse1;
  if (!infini_train::HasDeviceGuardImpl(type)) type = DeviceType::kCUDA;
  if (!infini_train::HasDeviceGuardImpl(type)) {
    std::fputs("no accelerator is linked: TARGET must be the provider's whole archive\n", stderr);
    return EXIT_FAILURE;
  }
  if (!SetProviderFlags()) {
    std::fputs("INFINI_TRAIN_TEST_PROVIDER_FLAGS names a flag that is not there\n", stderr);
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
