// A provider with a runtime and no kernels trains GPT-2 as the CPU does, bit by bit: every op falls
// back. Its memory faults when host code touches it.

#include <gtest/gtest.h>

#include <string>

#include "infini_train/ops/fallback.h"
#include "tests/trainer/tiny_run.h"

namespace infini_train::trainer {
namespace {

TEST(NoKernels, TrainToTheVeryNumbersOfTheCpu) {
  SetFallbackMode(FallbackMode::kSilent);
  const TinyRun run;
  constexpr int kSteps = 20;
  for (const std::string dtype : {"float32", "bfloat16"}) {
    ResetFallbackCounts();
    for (const std::string device : {"mock:1", "cpu"}) {
      const std::string name = dtype + (device == "cpu" ? "_cpu" : "_mock");
      TrainOptions options = run.Options();
      options.device = device;
      options.dtype = dtype;
      options.num_iteration = kSteps;
      options.total_batch_size = 32;  // Two micro-batches.
      options.grad_clip = 0.5;
      options.dropout = 0.1;
      options.save = run / name;
      options.metrics_file = run / (name + ".jsonl");
      RunTrain(options);
    }
    const auto on_mock = ReadMetrics(run / (dtype + "_mock.jsonl"));
    const auto on_cpu = ReadMetrics(run / (dtype + "_cpu.jsonl"));
    ASSERT_EQ(on_mock.size(), on_cpu.size());
    ASSERT_EQ(on_mock.size(), static_cast<std::size_t>(kSteps));
    for (std::size_t i = 0; i < on_mock.size(); ++i) {
      EXPECT_EQ(on_mock[i].at("loss"), on_cpu[i].at("loss")) << dtype << ", step " << i + 1;
      EXPECT_EQ(on_mock[i].at("grad_norm"), on_cpu[i].at("grad_norm")) << dtype;
    }
    ExpectSameCheckpoint(Checkpoint(run / (dtype + "_mock"), kSteps),
                         Checkpoint(run / (dtype + "_cpu"), kSteps));
    EXPECT_GE(FallbackCount(OpId::kAdamW), static_cast<std::uint64_t>(kSteps));
    EXPECT_GT(FallbackCount(OpId::kAttentionBackward), 0u);
  }
}

}  // namespace
}  // namespace infini_train::trainer
