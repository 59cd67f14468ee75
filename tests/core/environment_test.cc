// Settings from the environment are read strictly.

#include "infini_train/core/device/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/common/errors.h"

namespace infini_train {
namespace {

constexpr char kName[] = "INFINI_TRAIN_TEST_VARIABLE";

class Environment : public ::testing::Test {
 protected:
  static void Set(const char* value) { ::setenv(kName, value, /*overwrite=*/1); }
  ~Environment() override { ::unsetenv(kName); }
};

TEST_F(Environment, AnEmptyVariableIsNone) {
  ::unsetenv(kName);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(GetEnvironment(kName), std::nullopt);
    EXPECT_EQ(GetEnvironmentSwitch(kName), std::nullopt);
    EXPECT_EQ(GetEnvironmentInteger(kName, 1, 2), std::nullopt);
    Set("");
  }
  Set("text");
  EXPECT_EQ(GetEnvironment(kName), "text");
}

TEST_F(Environment, SwitchesAreZeroOrOne) {
  Set("0");
  EXPECT_EQ(GetEnvironmentSwitch(kName), false);
  Set("1");
  EXPECT_EQ(GetEnvironmentSwitch(kName), true);
  for (const char* value : {"2", "true", "01", " 1", "1 "}) {
    Set(value);
    EXPECT_ERROR(GetEnvironmentSwitch(kName), "INFINI_TRAIN_TEST_VARIABLE: expected 0 or 1, got '");
  }
}

TEST_F(Environment, IntegersAreWithinTheirLimits) {
  Set("-3");
  EXPECT_EQ(GetEnvironmentInteger(kName, -3, 4), -3);
  Set("4");
  EXPECT_EQ(GetEnvironmentInteger(kName, -3, 4), 4);
  for (const char* value : {"-4", "5", "1.5", "x", "1x", " 1", "99999999999999999999"}) {
    Set(value);
    EXPECT_ERROR(GetEnvironmentInteger(kName, -3, 4),
                 "INFINI_TRAIN_TEST_VARIABLE: expected an integer from -3 to 4, got '");
  }
}

}  // namespace
}  // namespace infini_train
