#include "backends/simt/kernels/decode/gemv_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "infini_train/core/error.h"
#include "tests/core/child_process.h"

namespace infini_train::simt {
namespace {

using infini_train::test::InChildProcess;

TEST(GemvPlan, IsWhatTheEnvironmentSays) {
  InChildProcess([] {
    EXPECT_EQ(GetGemvPlan().lanes, 512);
    EXPECT_EQ(GetGemvPlan().blocks_per_processor, 1);
  });
  InChildProcess([] {
    ::setenv("INFINI_TRAIN_GEMV_PLAN", "192x12", 1);
    EXPECT_EQ(GetGemvPlan().lanes, 192);
    EXPECT_EQ(GetGemvPlan().blocks_per_processor, 12);
  });
}

TEST(GemvPlan, RefusesWhatKernelsCannotRunWith) {
  for (const char* text : {"256", "256x", "x2", "0x2", "96x2", "1024x2", "256x0", "256x2x",
                           "256x2x1", "-64x2", "256 x 2", "256x17", "256x99999999999"}) {
    InChildProcess([&] {
      ::setenv("INFINI_TRAIN_GEMV_PLAN", text, 1);
      EXPECT_ERROR(GetGemvPlan(), "INFINI_TRAIN_GEMV_PLAN: expected <lanes>x<blocks>, ");
    });
  }
}

}  // namespace
}  // namespace infini_train::simt
