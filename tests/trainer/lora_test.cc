#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>

#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/models/lora.h"
#include "infini_train/trainer/commands.h"
#include "tests/common/errors.h"
#include "tests/trainer/tiny_run.h"

namespace infini_train::trainer {
namespace {

namespace fs = std::filesystem;

using infini_train::test::MessageOf;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kAdapters[] = "/adapter_model.safetensors";
constexpr char kAdapterConfig[] = "/adapter_config.json";

TrainOptions LoraRun(const TinyRun& run) {
  TrainOptions options = run.Options();
  options.num_iteration = 8;
  options.lora_rank = 2;
  options.lora_alpha = 6.0;
  options.lora_dropout = 0.1;
  options.save = run / "straight";
  return options;
}

std::string Output(const std::function<void(std::FILE*)>& command) {
  std::FILE* out = std::tmpfile();
  command(out);
  std::rewind(out);
  std::string text;
  for (int c; (c = std::fgetc(out)) != EOF;)
    text += static_cast<char>(c);
  std::fclose(out);
  return text;
}

std::string EvaluationOf(const TinyRun& run, const std::string& model, const std::string& lora) {
  EvaluateOptions options;
  options.model = model;
  options.lora_load_path = lora;
  options.input_bin = {run / "val.bin"};
  options.device = "cpu";
  options.sequence_length = 8;
  return Output([&](std::FILE* out) { EvaluateCommand(options, out); });
}

TEST(LoraTraining, FourAndFourStepsEqualEight) {
  const TinyRun run;
  const TrainOptions eight = LoraRun(run);
  EXPECT_THAT(RunTrain(eight).output, HasSubstr(" parameters, 576 trained in adapters | "));
  TrainOptions four = eight;
  four.num_iteration = 4;
  four.save = run / "resumed";
  RunTrain(four);
  // Only what the command line must say: the adapters and their base come from the checkpoint.
  four.num_iteration = 8;
  four.load = four.save;
  four.model.clear();
  four.lora_rank = 0;
  four.lora_alpha = four.lora_dropout = -1.0;
  EXPECT_THAT(RunTrain(four).output, HasSubstr("after step 4\n"));
  for (const char* file : {kAdapters, kAdapterConfig, kOptimizer, kState}) {
    EXPECT_TRUE(ReadFile(Checkpoint(eight.save, 8) + file) ==
                ReadFile(Checkpoint(four.save, 8) + file))
        << file;
  }
}

TEST(LoraTraining, CheckpointsHoldAdaptersAndTheirStateAlone) {
  const TinyRun run;
  const TrainOptions options = LoraRun(run);
  RunTrain(options);
  const std::string folder = Checkpoint(options.save, 8);
  EXPECT_FALSE(fs::exists(folder + kWeights));
  EXPECT_FALSE(fs::exists(folder + "/config.json"));
  EXPECT_EQ(models::LoraBase(folder), run / "start");
  const checkpoint::SafetensorsFile state(folder + kOptimizer);
  EXPECT_EQ(state.Names().size(), 2 * 2 * 6u) << "two moments of A and B of six layers";
  for (const std::string& name : state.Names())
    EXPECT_THAT(name, HasSubstr(".lora.")) << name;
}

TEST(LoraTraining, LearnsBesideABaseInBfloat16) {
  const TinyRun run;
  TrainOptions options = LoraRun(run);
  options.num_iteration = 30;
  options.learning_rate = 2e-2;
  options.lora_target_modules = "all-linear";
  options.metrics_file = run / "metrics.jsonl";
  for (const char* dtype : {"float32", "bfloat16"}) {
    options.param_dtype = options.dtype = dtype;
    fs::remove(options.metrics_file);
    RunTrain(options);
    const auto metrics = ReadMetrics(options.metrics_file);
    const double first = metrics.front().at("loss").get<double>();
    // Beside frozen random weights there is little to learn.
    EXPECT_LT(metrics.back().at("loss").get<double>(), first - 0.015) << dtype;
  }
}

TEST(LoraTraining, AdaptersAreSavedLoadedAndMerged) {
  const TinyRun run;
  TrainOptions options = LoraRun(run);
  options.lora_save_path = run / "adapters";
  RunTrain(options);
  EXPECT_TRUE(ReadFile(run / "adapters" + kAdapters) ==
              ReadFile(Checkpoint(options.save, 8) + kAdapters));

  const std::string expected = EvaluationOf(run, run / "start", run / "adapters");
  EXPECT_NE(expected, EvaluationOf(run, run / "start", ""));
  // A folder of adapters, or a run of them, stands for them on their base.
  EXPECT_EQ(EvaluationOf(run, run / "adapters", ""), expected);
  EXPECT_EQ(EvaluationOf(run, options.save, ""), expected);
  EXPECT_THAT(Output([&](std::FILE* out) { InfoCommand({.path = run / "adapters"}, out); }),
              HasSubstr("adapters: rank 2, alpha 6, dropout 0.1, of "));
  ExportOptions exported;
  exported.model = run / "start";
  exported.lora_load_path = run / "adapters";
  exported.output = run / "merged";
  Output([&](std::FILE* out) { ExportCommand(exported, out); });
  EXPECT_TRUE(fs::exists(run / "merged" + kWeights));
  EXPECT_EQ(EvaluationOf(run, run / "merged", ""), expected);

  // Training goes on from them.
  options.lora_load_path = run / "adapters";
  options.lora_save_path.clear();
  options.save = run / "more";
  options.metrics_file = run / "more.jsonl";
  RunTrain(options);
  options.lora_load_path.clear();
  options.metrics_file = run / "new.jsonl";
  RunTrain(options);
  EXPECT_LT(ReadMetrics(run / "more.jsonl").front().at("loss").get<double>(),
            ReadMetrics(run / "new.jsonl").front().at("loss").get<double>());
}

TEST(LoraTraining, AdaptersWhoseBaseIsGoneSayWhatToDo) {
  const TinyRun run;
  TrainOptions options = LoraRun(run);
  options.lora_save_path = run / "adapters";
  RunTrain(options);
  fs::rename(run / "start", run / "moved");
  EXPECT_EQ(MessageOf([&] { EvaluationOf(run, run / "adapters", ""); }),
            run / "adapters" + "/adapter_config.json: base_model_name_or_path: " + run / "start" +
                " is not there; name the adapters' model with --model, and them with "
                "--lora_load_path");
  EXPECT_THAT(EvaluationOf(run, run / "moved", run / "adapters"), HasSubstr("perplexity"));
}

TEST(LoraTraining, FlagsThatContradictAreErrors) {
  const TinyRun run;
  TrainOptions options = LoraRun(run);
  options.lora_save_path = run / "adapters";
  RunTrain(options);
  const auto refusal = [&](const std::function<void(TrainOptions&)>& change) {
    TrainOptions changed = options;
    changed.save.clear();
    changed.lora_save_path.clear();
    change(changed);
    return MessageOf([&] { RunTrain(changed); });
  };
  EXPECT_EQ(refusal([&](TrainOptions& o) {
              o.lora_rank = 0;
              o.lora_save_path = run / "nowhere";
            }),
            "lora_save_path: expected adapters (--lora_rank or --lora_load_path), got none");
  EXPECT_EQ(refusal([&](TrainOptions& o) {
              o.lora_load_path = run / "adapters";
              o.lora_rank = 3;
            }),
            "lora_rank: expected 2 as the adapters of " + run / "adapters" + " have it, got 3");
  EXPECT_EQ(
      refusal([&](TrainOptions& o) {
        o.lora_load_path = run / "adapters";
        o.lora_target_modules = "c_attn";
      }),
      "lora_target_modules: c_attn is not what the adapters of " + run / "adapters" + " adapt");
  EXPECT_EQ(refusal([&](TrainOptions& o) {
              o.load = options.save;
              o.lora_load_path = run / "adapters";
            }),
            "lora_load_path: expected none with --load, which has adapters (" +
                Checkpoint(options.save, 8) + ")");
  EXPECT_THAT(refusal([&](TrainOptions& o) { o.lora_rank = -1; }),
              HasSubstr("lora_rank: expected 1 to "));
  EXPECT_THAT(refusal([&](TrainOptions& o) { o.lora_load_path = run / "start"; }),
              HasSubstr("adapter_config.json"));

  TrainOptions whole = run.Options();
  whole.save = run / "whole";
  RunTrain(whole);
  EXPECT_EQ(refusal([&](TrainOptions& o) { o.load = whole.save; }),
            "load: " + Checkpoint(whole.save, 4) +
                " is a checkpoint of a whole model; to adapt it, start a run with --model " +
                Checkpoint(whole.save, 4));
}

TEST(LoraTraining, ResumesOnAPresetWithItsSeed) {
  const TinyRun run;
  TrainOptions options = LoraRun(run);
  options.model = "gpt2-nano";
  options.num_iteration = 1;
  RunTrain(options);
  EXPECT_EQ(models::LoraBase(Checkpoint(options.save, 1)), "gpt2-nano");
  options.load = options.save;
  options.num_iteration = 2;
  options.seed = 5;
  EXPECT_EQ(MessageOf([&] { RunTrain(options); }),
            "seed: expected 1337, from which the weights of gpt2-nano below the adapters were "
            "made, got 5");
  options.seed = 1337;
  EXPECT_EQ(RunTrain(options).status, 0);
}

}  // namespace
}  // namespace infini_train::trainer
