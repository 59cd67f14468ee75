#include "infini_train/core/device/launch_overlap.h"

#include <gtest/gtest.h>

#include <thread>

namespace infini_train {
namespace {

TEST(LaunchOverlap, HoldsForScopesOfTheThread) {
  EXPECT_FALSE(LaunchOverlap::IsAllowed());
  {
    const LaunchOverlap outer;
    {
      const LaunchOverlap inner;
      EXPECT_TRUE(LaunchOverlap::IsAllowed());
    }
    EXPECT_TRUE(LaunchOverlap::IsAllowed());
    std::thread([] { EXPECT_FALSE(LaunchOverlap::IsAllowed()); }).join();
  }
  EXPECT_FALSE(LaunchOverlap::IsAllowed());
}

TEST(LaunchOverlap, CanBeSwitchedOff) {
  const LaunchOverlap scope;
  LaunchOverlap::SetEnabled(false);
  EXPECT_FALSE(LaunchOverlap::IsAllowed());
  LaunchOverlap::SetEnabled(true);
  EXPECT_TRUE(LaunchOverlap::IsAllowed());
}

}  // namespace
}  // namespace infini_train
