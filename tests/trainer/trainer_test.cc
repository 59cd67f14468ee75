#include "infini_train/trainer/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/data/tokenizer.h"
#include "tests/core/child_process.h"
#include "tests/trainer/tiny_run.h"

namespace infini_train::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TrainOptions LongRun(const TinyRun& run) {
  TrainOptions options = run.Options();
  options.num_iteration = 20;
  options.total_batch_size = 32;
  options.dropout = 0.2;
  options.lr_decay_style = "cosine";
  options.lr_warmup_iters = 3;
  options.lr_decay_iters = 20;
  options.save = run / "straight";
  options.metrics_file = run / "straight.jsonl";
  return options;
}

void ExpectTenAndTenEqualTwenty(const TinyRun& run, const TrainOptions& twenty) {
  EXPECT_EQ(RunTrain(twenty).status, 0);
  TrainOptions ten = twenty;
  ten.num_iteration = 10;
  ten.save = run / "resumed";
  ten.metrics_file = run / "resumed.jsonl";
  EXPECT_EQ(RunTrain(ten).status, 0);
  EXPECT_TRUE(std::filesystem::exists(Checkpoint(ten.save, 10)));
  ten.num_iteration = 20;
  ten.load = ten.save;
  EXPECT_THAT(RunTrain(ten).output, HasSubstr("after step 10\n"));
  ExpectSameCheckpoint(Checkpoint(twenty.save, 20), Checkpoint(ten.save, 20));
  const auto metrics = ReadMetrics(twenty.metrics_file);
  EXPECT_EQ(metrics.size(), 20u);
  EXPECT_EQ(metrics, ReadMetrics(ten.metrics_file));
}

TEST(Resume, TenAndTenStepsEqualTwenty) {
  const TinyRun run;
  ExpectTenAndTenEqualTwenty(run, LongRun(run));
}

TEST(Resume, TenAndTenStepsEqualTwentyInFileOrderWithMomentumAndAutocast) {
  const TinyRun run;
  TrainOptions options = LongRun(run);
  options.shuffle = false;
  options.optimizer = "sgd";
  options.momentum = 0.9;
  options.dtype = "bfloat16";
  ExpectTenAndTenEqualTwenty(run, options);
}

TEST(Resume, TenAndTenStepsEqualTwentyWithParametersInBfloat16) {
  const TinyRun run;
  TrainOptions options = LongRun(run);
  options.dtype = options.param_dtype = "bfloat16";
  ExpectTenAndTenEqualTwenty(run, options);
}

TEST(Train, ParametersInBfloat16LearnAsThoseInFloat32) {
  const TinyRun run;
  TrainOptions options = LongRun(run);
  options.dropout = 0.0;
  options.learning_rate = 1e-2;
  options.dtype = "bfloat16";
  RunTrain(options);
  const double expected = ReadMetrics(options.metrics_file).back().at("loss").get<double>();
  options.param_dtype = "bfloat16";
  options.metrics_file = run / "parameters.jsonl";
  RunTrain(options);
  EXPECT_NEAR(ReadMetrics(options.metrics_file).back().at("loss").get<double>(), expected,
              1e-2 * expected);
}

TEST(Train, ParametersInBfloat16NeedAutocast) {
  const TinyRun run;
  TrainOptions options = LongRun(run);
  options.param_dtype = "bfloat16";
  EXPECT_ERROR(RunTrain(options), "param_dtype: bfloat16 needs --dtype bfloat16, got float32");
  options.param_dtype = "float16";
  EXPECT_ERROR(RunTrain(options), "param_dtype: expected float32 or bfloat16, got float16");
}

TEST(Resume, ScalesOfFp8AreUsedWhereThereIsUseForThem) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.dtype = "bfloat16";
  options.matmul_precision = "fp8";
  options.save = run / "fp8";
  RunTrain(options);
  const std::string with_scales = Checkpoint(options.save, 4);
  EXPECT_TRUE(std::filesystem::exists(with_scales + kFp8Scales));
  options.matmul_precision = "fp32";
  options.save = run / "bfloat16";
  RunTrain(options);
  const std::string without_scales = Checkpoint(options.save, 4);
  EXPECT_FALSE(std::filesystem::exists(without_scales + kFp8Scales));

  options.num_iteration = 6;
  options.save.clear();
  options.load = with_scales;
  EXPECT_THAT(RunTrain(options).output, AllOf(HasSubstr("step    6/6"), Not(HasSubstr("FP8"))));
  options.matmul_precision = "fp8";
  EXPECT_THAT(RunTrain(options).output, AllOf(HasSubstr("step    6/6"), Not(HasSubstr("FP8"))));
  options.load = without_scales;
  EXPECT_THAT(RunTrain(options).output,
              AllOf(HasSubstr("step    6/6"),
                    HasSubstr(without_scales + ": holds no scales of FP8: the first step measures "
                                               "its tensors\n")));
}

TEST(Resume, NamesTheFileOfAStateThatDoesNotFit) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.save = run / "out";
  RunTrain(options);
  options.num_iteration = 6;
  options.load = options.save;
  const std::string folder = Checkpoint(options.save, 4);
  options.sequence_length /= 2;
  EXPECT_ERROR(RunTrain(options), folder + "/training/state.json: the data position was saved");
  options.sequence_length *= 2;
  const std::string file = folder + "/training/optimizer.safetensors";
  checkpoint::WriteSafetensors(file, {{"exp_avg.extra", Tensor::FromVector<float>({0}, {1})}});
  EXPECT_ERROR(RunTrain(options),
               file + ": optimizer state does not fit the parameters; missing: exp_avg.");
}

TEST(Resume, RefusesScalesOfFp8ThatDoNotFit) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.dtype = "bfloat16";
  options.matmul_precision = "fp8";
  options.save = run / "out";
  RunTrain(options);
  options.num_iteration = 6;
  options.load = options.save;
  const std::string file = Checkpoint(options.save, 4) + kFp8Scales;
  NamedTensors scales;
  {
    const checkpoint::SafetensorsFile written(file);
    for (const std::string& name : written.Names())
      scales.emplace_back(name, written.Load(name));
  }
  const auto expect_refused = [&](const std::string& name, const Tensor& tensor,
                                  const std::string& message) {
    auto changed = scales;
    for (auto& [other, value] : changed)
      if (other == name) value = tensor;
    std::erase_if(changed, [](const auto& entry) { return !entry.second.defined(); });
    if (name == "extra") changed.emplace_back(name, tensor);
    checkpoint::WriteSafetensors(file, changed);
    EXPECT_ERROR(RunTrain(options), file + ": state of FP8 does not fit the model; " + message);
  };
  const std::string name = "h.1.mlp.c_fc.";
  const auto floats = [](const std::vector<float>& values) {
    return Tensor::FromVector(values, {static_cast<std::int64_t>(values.size())});
  };
  const auto shape = [&](const std::string& end) { return "wrong shape: " + name + end; };
  const auto values = [&](const std::string& end) { return "wrong values: " + name + end; };
  expect_refused(name + "scale", floats({1, 1}), shape("scale (expected [3], found [2])"));
  expect_refused(name + "history", floats({1, 1, 1}), shape("history (expected [3, 16], found"));
  expect_refused(name + "scale", floats({1, 3, 1}), values("scale (expected powers of two from"));
  expect_refused(name + "scale", floats({1, INFINITY, 1}), values("scale (expected powers of two"));
  expect_refused(name + "amax", floats({0, -1, 0}), values("amax (expected finite numbers of 0"));
  expect_refused(name + "has_past", floats({1, 1, 1}),
                 "wrong type: " + name + "has_past (expected uint8, found float32)");
  expect_refused(name + "has_past", Tensor::FromVector(std::vector<std::uint8_t>{1, 2, 1}, {3}),
                 values("has_past (expected 0 or 1, found 2)"));
  expect_refused(name + "has_past", Tensor(), "missing: " + name + "has_past");
  expect_refused("extra", floats({0}), "unexpected: extra");
  std::filesystem::remove(file);
  EXPECT_ERROR(RunTrain(options), file);
  checkpoint::WriteSafetensors(file, scales);
  EXPECT_THAT(RunTrain(options).output, HasSubstr("step    6/6"));
}

TEST(Resume, WithoutOptimizerStateIsAskedFor) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.save = run / "out";
  options.save_optimizer_state = false;
  RunTrain(options);
  EXPECT_FALSE(std::filesystem::exists(Checkpoint(options.save, 4) + kOptimizer));
  options.load = options.save;
  options.num_iteration = 6;
  EXPECT_ERROR(RunTrain(options), "pass --load_optimizer_state=false to start without");
  options.load_optimizer_state = false;
  EXPECT_THAT(RunTrain(options).output, HasSubstr("step    6/6"));
}

// An optimizer that began anew counts its own steps, which bias correction depends on, also across
// another resume.
TEST(Resume, AnOptimizerThatBeganAnewKeepsItsOwnStep) {
  const TinyRun run;
  TrainOptions options = LongRun(run);
  options.num_iteration = 6;
  RunTrain(options);
  const std::string begin = Checkpoint(options.save, 6);

  TrainOptions straight = options;
  straight.load = begin;
  straight.load_optimizer_state = false;
  straight.num_iteration = 12;
  straight.save = run / "anew";
  RunTrain(straight);

  TrainOptions resumed = straight;
  resumed.num_iteration = 9;
  resumed.save = run / "anew_in_two";
  RunTrain(resumed);
  resumed.load = resumed.save;
  resumed.load_optimizer_state = true;
  resumed.num_iteration = 12;
  RunTrain(resumed);
  ExpectSameCheckpoint(Checkpoint(straight.save, 12), Checkpoint(resumed.save, 12));
}

TEST(Resume, RefusesAnotherOptimizerDataModelOrEnd) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.save = run / "out";
  RunTrain(options);
  const std::string before = ReadFile(Checkpoint(options.save, 4) + kWeights);
  options.load = options.save;
  EXPECT_ERROR(RunTrain(options),
               "num_iteration: expected more than the 4 steps already made, got 4");
  options.num_iteration = 8;
  TrainOptions changed = options;
  changed.optimizer = "sgd";
  EXPECT_ERROR(RunTrain(changed), "holds the state of adamw, expected sgd");
  changed = options;
  changed.batch_size = 3;
  EXPECT_ERROR(RunTrain(changed), "sequences_per_step was 2, is 3");
  changed = options;
  models::ModelConfig other = TinyConfig();
  other.transformer.hidden_size = 24;
  other.transformer.head_dim = 12;
  other.transformer.num_hidden_layers = 1;
  models::SaveModel(models::CreateModel(other, 1), run / "other");
  changed.model = run / "other";
  EXPECT_THAT([&] { RunTrain(changed); },
              ::testing::ThrowsMessage<Error>(AllOf(HasSubstr("holds another model than --model"),
                                                    HasSubstr("hidden_size: 24 and 16"),
                                                    HasSubstr("num_hidden_layers: 1 and 2"))));
  EXPECT_EQ(before, ReadFile(Checkpoint(options.save, 4) + kWeights));
}

TEST(Train, TheSameSeedTwiceIsIdenticalAndAnotherIsNot) {
  const TinyRun run;
  TrainOptions options = LongRun(run);
  options.num_iteration = 5;
  RunTrain(options);
  options.save = run / "again";
  RunTrain(options);
  ExpectSameCheckpoint(Checkpoint(run / "straight", 5), Checkpoint(run / "again", 5));
  options.save = run / "other_seed";
  options.seed = 1;
  RunTrain(options);
  EXPECT_NE(ReadFile(Checkpoint(run / "straight", 5) + kWeights),
            ReadFile(Checkpoint(run / "other_seed", 5) + kWeights));
}

TEST(Train, EightMicroBatchesOfOneEqualOneOfEight) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.total_batch_size = 64;
  options.num_iteration = 3;
  options.optimizer = "sgd";
  options.learning_rate = 0.1;
  options.batch_size = 8;
  options.save = run / "eight";
  options.metrics_file = run / "eight.jsonl";
  RunTrain(options);
  options.batch_size = 1;
  options.save = run / "one";
  options.metrics_file = run / "one.jsonl";
  RunTrain(options);

  const auto eight = ReadMetrics(run / "eight.jsonl");
  const auto one = ReadMetrics(run / "one.jsonl");
  ASSERT_EQ(one.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    for (const char* key : {"loss", "grad_norm"}) {
      const double expected = eight[i][key];
      EXPECT_NEAR(one[i][key].get<double>(), expected, 1e-6 * expected) << key << " of step " << i;
    }
  }
  ExpectCloseWeights(Checkpoint(run / "eight", 3), Checkpoint(run / "one", 3), 1e-6);
}

TEST(Train, LearnsToCount) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.num_iteration = 100;
  options.input_val_bin = {run / "val.bin"};
  options.val_loss_every = 100;
  options.metrics_file = run / "metrics.jsonl";
  const Outcome outcome = RunTrain(options);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("step    0 | val loss"), HasSubstr("step  100 | val loss")));
  const auto metrics = ReadMetrics(options.metrics_file);
  ASSERT_EQ(metrics.size(), 102u);
  EXPECT_NEAR(metrics.front()["val_loss"].get<double>(), std::log(64.0), 0.3);
  EXPECT_LT(metrics.back()["val_loss"].get<double>(), 2.0);
}

TEST(Train, ANotFiniteLossSaysStepAndPlaceAndSavesNothing) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.save = run / "out";
  RunTrain(options);
  const std::string before = ReadFile(Checkpoint(options.save, 4) + kWeights);
  options.load = options.save;
  options.num_iteration = 9;
  options.learning_rate = 1e30;
  EXPECT_THAT([&] { RunTrain(options); },
              ::testing::ThrowsMessage<Error>(
                  AllOf(HasSubstr("step 6: expected finite numbers, but the loss is"),
                        HasSubstr("the first that is not finite is in the output of h.0"))));
  EXPECT_EQ(ReadFile(Checkpoint(options.save, 4) + kWeights), before);
  EXPECT_EQ(ReadFile(options.save + "/latest"), "checkpoint_step_000004\n");
  EXPECT_FALSE(std::filesystem::exists(Checkpoint(options.save, 5)));
}

TEST(Train, AFolderThatCannotBeWrittenIsFoundBeforeTraining) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.save = run / "train.bin/below_a_file";
  options.metrics_file = run / "metrics.jsonl";
  EXPECT_ERROR(RunTrain(options), "train.bin/below_a_file");
  EXPECT_FALSE(std::filesystem::exists(options.metrics_file));
  options.save.clear();
  options.metrics_file = run / "nowhere/metrics.jsonl";
  EXPECT_ERROR(RunTrain(options), "nowhere/metrics.jsonl: cannot be written");
}

TEST(Train, KeepsTheNewestCheckpoints) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.save = run / "out";
  options.save_interval = 1;
  options.max_checkpoint_keep = 2;
  RunTrain(options);
  EXPECT_FALSE(std::filesystem::exists(Checkpoint(options.save, 2)));
  EXPECT_TRUE(std::filesystem::exists(Checkpoint(options.save, 3)));
  EXPECT_TRUE(std::filesystem::exists(Checkpoint(options.save, 4)));
}

TEST(Train, ActivationRecomputationChangesNothing) {
  const TinyRun run;
  TrainOptions options = LongRun(run);
  options.num_iteration = 4;
  RunTrain(options);
  options.save = run / "recomputed";
  options.activation_recompute = true;
  for (const auto& [method, layers] :
       {std::pair{"none", 1}, std::pair{"uniform", 2}, std::pair{"block", 1}}) {
    options.recompute_method = method;
    options.recompute_num_layers = layers;
    RunTrain(options);
    EXPECT_EQ(ReadFile(Checkpoint(run / "straight", 4) + kWeights),
              ReadFile(Checkpoint(run / "recomputed", 4) + kWeights))
        << method;
  }
}

TEST(Train, OneBatchIsRepeatedWhenAskedFor) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.overfit_single_batch = true;
  options.learning_rate = 0.0;
  options.metrics_file = run / "metrics.jsonl";
  RunTrain(options);
  const auto metrics = ReadMetrics(options.metrics_file);
  for (const auto& line : metrics)
    EXPECT_EQ(line["loss"], metrics[0]["loss"]);
}

TEST(Train, TakesTheTokenizerBesideTheModelAndNoOther) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.num_iteration = 1;
  const auto saves_a_tokenizer = [&](const char* folder) {
    options.save = run / folder;
    RunTrain(options);
    return PathExists(Checkpoint(options.save, 1) + "/tokenizer.json");
  };
  models::ModelConfig config = TinyConfig();
  config.transformer.intermediate_size = 4 * config.transformer.hidden_size;
  CreateFolder(run / "llmc");
  models::SaveLlmcCheckpoint(models::CreateModel(config, 7), run / "llmc/model.bin");
  LoadTokenizer("bytes")->Save(run / "llmc");
  options.model.clear();
  options.llmc_filepath = run / "llmc/model.bin";
  EXPECT_TRUE(saves_a_tokenizer("beside"));

  // Where the program runs may be one as well.
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(run / "llmc");
  options.llmc_filepath.clear();
  options.default_model = run / "start";
  EXPECT_FALSE(saves_a_tokenizer("elsewhere"));
  std::filesystem::current_path(before);
}

TEST(Train, SamplesNeedATokenizerThatFits) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.sample_every = 2;
  EXPECT_ERROR(RunTrain(options), "freq_generate_txt: expected a tokenizer");
  options.tokenizer = "bytes";
  options.prompt = "a";
  EXPECT_ERROR(RunTrain(options),
               "token 97 of the prompt is not below the model's vocabulary of 64");
  options.prompt = "12";
  options.text_length = 5;
  const Outcome outcome = RunTrain(options);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("--- sample at step 2 ---\n12"),
                    HasSubstr("--- sample at step 4 ---\n12"), Not(HasSubstr("sample at step 3"))));
}

TEST(Train, StopsAtTheTimeLimitWithTheScheduleFittedToIt) {
  const TinyRun run;
  TrainOptions options = run.Options();
  options.num_iteration = 0;
  options.max_train_minutes = 0.005;
  options.lr_decay_style = "linear";
  options.log_interval = 0;
  options.save = run / "out";
  options.metrics_file = run / "metrics.jsonl";
  const Outcome outcome = RunTrain(options);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("saved "), Not(HasSubstr("train loss"))));
  const auto metrics = ReadMetrics(options.metrics_file);
  ASSERT_GT(metrics.size(), 1u);
  EXPECT_LT(metrics.back()["lr"].get<double>(), metrics.front()["lr"].get<double>());
  options.max_train_minutes = 0.0;
  EXPECT_ERROR(RunTrain(options), "num_iteration: expected steps to make, or --max_train_minutes");
}

}  // namespace
}  // namespace infini_train::trainer
