// What programs take from the environment when they choose a device.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/device/launch_overlap.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/profiler.h"
#include "infini_train/trainer/setup.h"
#include "tests/core/child_process.h"
#include "tests/core/mock_provider.h"

namespace infini_train::trainer {
namespace {

using infini_train::test::InChildProcess;

TEST(Environment, SwitchesWhatDevicesDo) {
  InChildProcess([] {
    const LaunchOverlap overlap;
    ResolveDevice("cpu");
    EXPECT_TRUE(IsDeterministic());
    EXPECT_FALSE(ProfilerRangesEnabled());
    EXPECT_TRUE(allocator::ExpandableSegmentsEnabled());
    EXPECT_TRUE(LaunchOverlap::IsAllowed());
    ::setenv("INFINI_TRAIN_DETERMINISTIC", "0", 1);
    ::setenv("INFINI_TRAIN_PROFILER_RANGES", "1", 1);
    ::setenv("INFINI_TRAIN_EXPANDABLE_SEGMENTS", "0", 1);
    ::setenv("INFINI_TRAIN_LAUNCH_OVERLAP", "0", 1);
    ResolveDevice("cpu");
    EXPECT_FALSE(IsDeterministic());
    EXPECT_TRUE(ProfilerRangesEnabled());
    EXPECT_FALSE(allocator::ExpandableSegmentsEnabled());
    EXPECT_FALSE(LaunchOverlap::IsAllowed());
  });
}

TEST(Environment, RefusesOtherValuesBeforeAnyWork) {
  for (const char* name :
       {"INFINI_TRAIN_DETERMINISTIC", "INFINI_TRAIN_PROFILER_RANGES", "INFINI_TRAIN_FALLBACK",
        "INFINI_TRAIN_EXPANDABLE_SEGMENTS", "INFINI_TRAIN_LAUNCH_OVERLAP"}) {
    InChildProcess([&] {
      ::setenv(name, "maybe", 1);
      EXPECT_ERROR(ResolveDevice("cpu"), std::string(name) + ": expected ");
      EXPECT_ERROR(ResolveDevice("cpu"), "got 'maybe'");
    });
  }
}

TEST(Environment, TheChosenDeviceBecomesTheCurrentOne) {
  InChildProcess([] {
    infini_train::test::RegisterMockProvider();
    EXPECT_EQ(ResolveDevice("mock:1"), Device(DeviceType::kPrivateUse1, 1));
    EXPECT_EQ(infini_train::test::MockRuntime::current_device, 1);
  });
}

}  // namespace
}  // namespace infini_train::trainer
