#include "backends/simt/kernels/decode/gemv_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "infini_train/core/error.h"
#include "tests/core/child_process.h"

namespace infini_train::simt {
namespace {

using infini_train::testing::InChildProcess;

TEST(GemvPlan, IsWhatTheEnvironmentSays) {
  InChildProcess([] {
    EXPECT_EQ(GetGemvPlan().lanes, 256);
    EXPECT_EQ(GetGemvPlan().blocks_per_processor, 2);
  });
  InChildProcess([] {
    ::setenv("INFINI_TRAIN_GEMV_PLAN", "96x12", 1);
    EXPECT_EQ(GetGemvPlan().lanes, 96);
    EXPECT_EQ(GetGemvPlan().blocks_per_processor, 12);
    EXPECT_EQ(GetGemvPlan().batches_left, 0);
  });
  InChildProcess([] {
    ::setenv("INFINI_TRAIN_GEMV_PLAN", "32x64x100", 1);
    EXPECT_EQ(GetGemvPlan().lanes, 32);
    EXPECT_EQ(GetGemvPlan().blocks_per_processor, 64);
    EXPECT_EQ(GetGemvPlan().batches_left, 100);
  });
}

TEST(GemvPlan, RefusesWhatKernelsCannotRunWith) {
  for (const char* text :
       {"256", "256x", "x2", "0x2", "100x2", "512x2", "256x0", "256x2x", "256x2x-1", "256x2x1x",
        "-32x2", "256 x 2", "256x65", "256x99999999999"}) {
    InChildProcess([&] {
      ::setenv("INFINI_TRAIN_GEMV_PLAN", text, 1);
      EXPECT_ERROR(GetGemvPlan(), "INFINI_TRAIN_GEMV_PLAN: expected <lanes>x<blocks>[x<batches>]");
    });
  }
}

}  // namespace
}  // namespace infini_train::simt
