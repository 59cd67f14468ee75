#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "infini_train/ops/attention_kernel.h"
#include "tests/common/errors.h"
#include "tests/trainer/tiny_run.h"

namespace infini_train::trainer {
namespace {

using infini_train::test::MessageOf;

/// Of training the whole model, or adapters of this rank in these layers.
void ExpectNoStepChanged(std::int64_t lora_rank, const std::string& lora_targets = "") {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.dropout = 0.1;
  options.lora_rank = lora_rank;
  options.lora_target_modules = lora_targets;
  if (lora_rank > 0) options.lora_dropout = 0.1;
  options.metrics_file = run / "none.jsonl";
  RunTrain(options);
  const auto expected = ReadMetrics(options.metrics_file);
  const auto expect_same = [&](const std::string& name, const TrainOptions& changed) {
    TrainOptions other = changed;
    other.metrics_file = run / name + ".jsonl";
    RunTrain(other);
    EXPECT_EQ(ReadMetrics(other.metrics_file), expected) << name;
  };
  for (const char* kind : {"none", "block", "selective"}) {
    TrainOptions changed = options;
    changed.recompute = kind;
    expect_same(kind, changed);
  }
  TrainOptions changed = options;
  changed.activation_recompute = true;
  changed.recompute_granularity = "selective";
  expect_same("granularity", changed);
}

TEST(Recompute, ChangesNoStep) {
  ExpectNoStepChanged(0);
}

TEST(Recompute, ChangesNoStepOfAdapters) {
  ExpectNoStepChanged(2);
}

TEST(Recompute, ChangesNoStepOfAdaptersInMlps) {
  ExpectNoStepChanged(2, "all-linear");
}

TEST(Recompute, FlagsThatContradictAreErrors) {
  const TinyRun run;
  const auto refusal = [&](auto change) {
    TrainOptions options = run.Options();
    change(options);
    return MessageOf([&] { RunTrain(options); });
  };
  EXPECT_EQ(refusal([](TrainOptions& o) { o.recompute = "all"; }),
            "recompute: expected none, block or selective, got all");
  EXPECT_EQ(refusal([](TrainOptions& o) {
              o.recompute = "block";
              o.activation_recompute = true;
            }),
            "recompute: expected none beside --activation_recompute, got block");
  EXPECT_EQ(refusal([](TrainOptions& o) {
              o.activation_recompute = true;
              o.recompute_granularity = "half";
            }),
            "recompute_granularity: expected none, selective or full, got half");
  EXPECT_EQ(refusal([](TrainOptions& o) {
              o.activation_recompute = true;
              o.recompute_granularity = "selective";
              o.recompute_method = "block";
            }),
            "recompute_method: expected none with selective recomputation, got block");
}

TEST(Attention, TheKernelIsOneThatTheDeviceHas) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.attention = "fused";
  EXPECT_EQ(MessageOf([&] { RunTrain(options); }),
            "attention: cpu has no fused kernel of a library; expected auto or portable");
  options.attention = "flash";
  EXPECT_EQ(MessageOf([&] { RunTrain(options); }),
            "attention: expected auto, portable or fused, got 'flash'");
  options.attention = "portable";
  EXPECT_EQ(RunTrain(options).status, 0);
  EXPECT_EQ(GetAttentionKernel(), AttentionKernel::kPortable);
  SetAttentionKernel(AttentionKernel::kAuto);
}

}  // namespace
}  // namespace infini_train::trainer
