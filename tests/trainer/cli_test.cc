#include "infini_train/trainer/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "infini_train/core/device/provider_flags.h"
#include "tests/trainer/tiny_run.h"

namespace infini_train::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;

struct Result {
  int status = 0;
  std::string out;
  std::string error;
};

Result Call(Arguments arguments, const std::function<int(int, char**)>& main = &InfiniTrainMain) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments)
    argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Result result;
  result.status = main(static_cast<int>(arguments.size()), argv.data());
  result.error = ::testing::internal::GetCapturedStderr();
  result.out = ::testing::internal::GetCapturedStdout();
  return result;
}

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Expects exit status 2 and one line on stderr that has every part.
void ExpectRefused(const Arguments& arguments, const std::vector<std::string>& parts) {
  const Result result = Call(arguments);
  EXPECT_EQ(result.status, 2) << ::testing::PrintToString(arguments);
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
  EXPECT_THAT(result.error, StartsWith("infini-train: "));
  for (const std::string& part : parts)
    EXPECT_THAT(result.error, HasSubstr(part));
}

class TrainCommandTest : public ::testing::Test {
 protected:
  Arguments Train(const Arguments& more) const {
    return Arguments{"train"} + run_.Arguments() + more;
  }

  void ExpectTrainRefused(const Arguments& more, const std::vector<std::string>& parts) const {
    ExpectRefused(Train(more), parts);
  }

  /// The saved state of a run with these arguments.
  nlohmann::json StateAfter(const Arguments& more) const {
    std::filesystem::remove_all(run_ / "out");
    const Result result =
        Call(Train(Arguments{"--num_iteration", "1", "--save", run_ / "out"} + more));
    EXPECT_EQ(result.status, 0) << result.error;
    const std::string folder =
        run_ /
        ("out/" + ReadFile(run_ / "out/latest").substr(0, std::strlen("checkpoint_step_000001")));
    return nlohmann::json::parse(ReadFile(folder + "/training/state.json"));
  }

  bool Shuffled(const Arguments& more) const { return StateAfter(more)["data"]["shuffle"]; }

  TinyRun run_;
};

TEST_F(TrainCommandTest, BooleansHaveEveryUsualForm) {
  EXPECT_TRUE(Shuffled({}));
  for (const Arguments& form : std::vector<Arguments>{{"--shuffle", "false"},
                                                      {"--shuffle=false"},
                                                      {"--noshuffle"},
                                                      {"-noshuffle"},
                                                      {"--shuffle=0"},
                                                      {"--shuffle", "False"},
                                                      {"--shuffle=no"},
                                                      {"--shuffle=off"},
                                                      {"--shuffle=F"},
                                                      {"--shuffle", "--noshuffle"}}) {
    EXPECT_FALSE(Shuffled(form)) << ::testing::PrintToString(form);
  }
  for (const Arguments& form : std::vector<Arguments>{{"--noshuffle", "--shuffle"},
                                                      {"--noshuffle", "--shuffle", "true"},
                                                      {"--noshuffle", "--shuffle=1"},
                                                      {"--noshuffle", "--shuffle=yes"}}) {
    EXPECT_TRUE(Shuffled(form)) << ::testing::PrintToString(form);
  }
  ExpectTrainRefused({"--shuffle=maybe"}, {"shuffle: expected true or false, got maybe"});
}

TEST_F(TrainCommandTest, TheLastValueOfARepeatedFlagWins) {
  EXPECT_EQ(StateAfter({"--num_iteration=9", "--num_iteration", "2"})["step"], 2);
  EXPECT_EQ(StateAfter({"--noshuffle", "--seed", "5", "--seed", "6"})["random"]["seed"], 6);
}

TEST_F(TrainCommandTest, OneDashAndDashesInNamesAreAccepted) {
  EXPECT_EQ(StateAfter({"-num_iteration", "2"})["step"], 2);
  EXPECT_EQ(StateAfter({"-num_iteration=2"})["step"], 2);
  EXPECT_EQ(StateAfter({"--num-iteration", "2"})["step"], 2);
  EXPECT_EQ(StateAfter({"--num-iteration=2"})["step"], 2);
}

TEST_F(TrainCommandTest, ListsCollect) {
  const nlohmann::json state = StateAfter({"--input_bin", run_ / "val.bin"});
  EXPECT_EQ(state["data"]["num_shards"], 7);
}

TEST_F(TrainCommandTest, AnEmptyTextIsAValue) {
  EXPECT_EQ(StateAfter({"--metrics_file", ""})["step"], 1);
  EXPECT_EQ(StateAfter({"--metrics_file="})["step"], 1);
  ExpectTrainRefused({"--learning_rate", ""},
                     {"learning_rate: expected a number, got an empty text"});
}

TEST_F(TrainCommandTest, AModelsProgramIsTrainWithItsDefaults) {
  const auto program = [](int argc, char** argv) {
    TrainOptions options;
    options.default_model = "gpt2";
    return ModelMain(argc, argv, options);
  };
  const Result result = Call(run_.Arguments(), program);
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("step    4/4 | train loss"));
  const Result wrong = Call({"--no_such_flag"}, program);
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.error, StartsWith("gpt2: unknown flag --no_such_flag"));
}

TEST_F(TrainCommandTest, UnknownFlagsNameTheNearestThatIsNear) {
  ExpectTrainRefused({"--learning_rat=1"},
                     {"unknown flag --learning_rat; the nearest is --learning_rate"});
  ExpectTrainRefused({"--num_iterations", "4"}, {"the nearest is --num_iteration"});
  ExpectTrainRefused({"--metrics", "x"}, {"the nearest is --metrics_file"});
  ExpectTrainRefused({"--noshufle"}, {"unknown flag --noshufle; the nearest is --shuffle"});
  ExpectTrainRefused({"--lr", "1"}, {"unknown flag --lr; --help lists them"});
  ExpectRefused({"tran"}, {"unknown command 'tran'; the nearest is train"});
  ExpectRefused({"eval"}, {"the nearest is evaluate"});
  ExpectRefused({"merge"}, {"unknown command 'merge'; expected one of tokenize, train, "});
}

TEST_F(TrainCommandTest, ValuesThatDoNotFitSayExpectedAndFound) {
  ExpectTrainRefused({"--batch_size", "abc"}, {"batch_size: expected an integer, got abc"});
  ExpectTrainRefused({"--batch_size", "1.5"}, {"batch_size: expected an integer, got 1.5"});
  ExpectTrainRefused({"--seed", "-1"}, {"seed: expected an integer of 0 or more, got -1"});
  ExpectTrainRefused({"--learning_rate", "fast"}, {"learning_rate: expected a number, got fast"});
  ExpectTrainRefused({"--batch_size", "99999999999999999999"}, {"batch_size: expected"});
  ExpectTrainRefused({"--batch_size"}, {"batch_size: expected a value, got none"});
  ExpectTrainRefused({"--batch_size", "--seed", "1"},
                     {"batch_size: expected a value, got the flag --seed"});
  ExpectTrainRefused({"stray"}, {"stray"});
}

TEST_F(TrainCommandTest, NumbersOutOfRangeAreRefused) {
  const std::pair<const char*, const char*> cases[] = {{"batch_size", "0"},
                                                       {"batch_size", "4611686018427387904"},
                                                       {"sequence_length", "-8"},
                                                       {"num_iteration", "-1"},
                                                       {"recompute_num_layers", "0"},
                                                       {"text_length", "0"},
                                                       {"total_batch_size", "-16"},
                                                       {"total_batch_size", "2147483648"},
                                                       {"global_batch_size", "-1"},
                                                       {"global_batch_size", "2147483648"},
                                                       {"log_interval", "-1"},
                                                       {"val_loss_every", "-1"},
                                                       {"val_max_steps", "-1"},
                                                       {"freq_generate_txt", "-1"},
                                                       {"save_interval", "-1"},
                                                       {"max_checkpoint_keep", "-1"},
                                                       {"lr_warmup_iters", "-1"},
                                                       {"lr_decay_iters", "-1"},
                                                       {"lr_stable_iters", "-1"},
                                                       {"weight_decay", "-0.1"},
                                                       {"grad_clip", "nan"},
                                                       {"momentum", "-1"},
                                                       {"beta1", "1"},
                                                       {"beta2", "-0.5"},
                                                       {"eps", "0"},
                                                       {"dropout", "1"},
                                                       {"tensor_parallel", "2"},
                                                       {"pipeline_parallel", "2"},
                                                       {"zero_stage", "1"},
                                                       {"num_threads", "-1"},
                                                       {"peak_tflops", "-1"},
                                                       {"max_train_minutes", "inf"},
                                                       {"nthread_per_process", "0"}};
  for (const auto& [flag, value] : cases) {
    ExpectTrainRefused({std::string("--") + flag, value}, {std::string(flag) + ": expected"});
  }
  ExpectTrainRefused({"--learning_rate", "-1"}, {"expected a rate of 0 or more, got -1"});
  ExpectTrainRefused({"--min_lr", "1"}, {"expected 0 <= min_lr <= 0.01, got 1"});
  ExpectTrainRefused({"--lr_warmup_iters", "4"}, {"expected 0 <= warm-up steps < 4"});
  ExpectTrainRefused({"--lr_decay_style", "sine"}, {"'sine' is no learning-rate decay style"});
  ExpectTrainRefused({"--optimizer", "lion"}, {"optimizer: expected adamw or sgd, got lion"});
  ExpectTrainRefused({"--dtype", "float16"}, {"dtype: expected float32 or bfloat16, got float16"});
  ExpectTrainRefused({"--matmul_precision", "fp16"},
                     {"matmul_precision: expected fp64, fp32, tf32, bf16 or fp8, got fp16"});
  ExpectTrainRefused({"--graph", "yes"}, {"graph: expected auto, on or off, got yes"});
  ExpectTrainRefused({"--graph", "on"}, {"graph: cpu cannot capture work into graphs"});
  ExpectTrainRefused({"--device", "tpu"}, {"tpu"});
  ExpectTrainRefused({"--device", "cpu:1"}, {"cpu:1"});
  ExpectTrainRefused({"--save_interval", "2"}, {"save_interval: expected --save"});
  ExpectTrainRefused({"--activation_recompute", "--recompute_method", "some"},
                     {"recompute_method: expected none, uniform or block, got some"});
  ExpectTrainRefused({"--activation_recompute", "--recompute_granularity", "half"},
                     {"recompute_granularity: expected none, selective or full, got half"});
  ExpectTrainRefused({"--recompute_method", "some"}, {"recompute_method: expected none, uniform"});
  ExpectTrainRefused({"--recompute_granularity", "half"}, {"recompute_granularity: expected none"});
  ExpectTrainRefused({"--dtype", "half"}, {"dtype: expected float32 or bfloat16, got half"});
  ExpectTrainRefused({"--param_dtype", "half"},
                     {"param_dtype: expected float32 or bfloat16, got half"});
  ExpectTrainRefused({"--num_threads", "4097"}, {"num_threads: expected 0 to 4096, got 4097"});
  for (const Arguments& flag : {Arguments{"--lora_alpha", "8"}, Arguments{"--lora_dropout", "0.1"},
                                Arguments{"--lora_target_modules", "c_attn"},
                                Arguments{"--lora_save_path", run_ / "never"}}) {
    ExpectTrainRefused(flag, {flag[0].substr(2) +
                              ": expected adapters (--lora_rank or --lora_load_path), got none"});
  }
}

TEST_F(TrainCommandTest, TokenFilesThatAreWrongAreRefused) {
  const auto train_on = [&](const std::string& name) {
    return Arguments{"train",       "--model",      run_ / "start",
                     "--input_bin", run_ / name,    "--sequence_length",
                     "8",           "--batch_size", "2",
                     "--device",    "cpu",          "--save",
                     run_ / "never"};
  };
  ExpectRefused(train_on("missing.bin"), {"missing.bin"});
  std::ofstream(run_ / "empty.bin");
  ExpectRefused(train_on("empty.bin"), {"empty.bin"});
  test::WriteRawShard<std::uint16_t>(run_ / "truncated.bin", 20240520, 1, 100, 50);
  ExpectRefused(train_on("truncated.bin"), {"truncated.bin", "100", "50"});
  test::WriteRawShard<std::uint16_t>(run_ / "magic.bin", 12345, 1, 50, 50);
  ExpectRefused(train_on("magic.bin"), {"magic.bin", "12345"});
  test::WriteRawShard<std::uint16_t>(run_ / "version.bin", 20240520, 2, 50, 50);
  ExpectRefused(train_on("version.bin"), {"version.bin", "2"});
  test::WriteShard16(run_ / "vocabulary.bin", 40, 40);  // 40 to 79
  ExpectRefused(train_on("vocabulary.bin"), {"vocabulary.bin", "64"});
  test::WriteShard16(run_ / "short.bin", 16);
  ExpectRefused(train_on("short.bin"), {"16", "17"});
  test::WriteShard16(run_ / "enough.bin", 17);
  EXPECT_EQ(Call(train_on("enough.bin")).status, 0);
  ExpectTrainRefused({"--input_val_bin", run_ / "magic.bin"}, {"magic.bin", "12345"});
}

// The flags of the mixtral program elsewhere: sequences in place of tokens.
TEST_F(TrainCommandTest, BatchesMayBeCountedInSequences) {
  const auto train = [&](const Arguments& more) {
    Arguments arguments = Train(more);
    return Call(arguments).out;
  };
  const auto first_line = [](const std::string& out) { return out.substr(0, out.find('\n')); };
  const std::string in_tokens =
      first_line(train({"--batch_size", "2", "--total_batch_size", "48"}));
  EXPECT_THAT(in_tokens, HasSubstr("48 tokens a step (3 x 2 x 8)"));
  EXPECT_EQ(first_line(train({"--micro_batch_size", "2", "--global_batch_size", "6"})), in_tokens);
}

TEST_F(TrainCommandTest, BatchesThatDoNotFitAreRefused) {
  ExpectTrainRefused({"--total_batch_size", "24"},
                     {"total_batch_size: expected a multiple of batch_size * sequence_length = 2 * "
                      "8 = 16, got 24"});
  ExpectTrainRefused({"--global_batch_size", "3"},
                     {"global_batch_size: expected a multiple of batch_size = 2, got 3"});
  ExpectTrainRefused({"--global_batch_size", "4", "--total_batch_size", "32"},
                     {"global_batch_size: expected only one of it and total_batch_size, got both"});
  ExpectTrainRefused({"--sequence_length", "17"},
                     {"sequence_length: expected at most the model's 16 positions, got 17"});
  ExpectRefused({"train"},
                {"input_bin: expected token files (or JSON lines: input_jsonl), got none"});
}

/// Rewrites the JSON header of a safetensors file.
void EditSafetensors(const std::string& path, const std::function<void(nlohmann::json&)>& edit) {
  const std::string content = ReadFile(path);
  std::uint64_t size = 0;
  std::memcpy(&size, content.data(), 8);
  nlohmann::json header = nlohmann::json::parse(content.substr(8, size));
  const std::string data = content.substr(8 + size);
  edit(header);
  const std::string text = header.dump();
  size = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), 8);
  file << text << data;
}

TEST_F(TrainCommandTest, ModelsThatAreWrongAreRefused) {
  const std::string weights = run_ / "start/model.safetensors";
  const std::string config = run_ / "start/config.json";
  const std::string good_weights = ReadFile(weights);
  const std::string good_config = ReadFile(config);
  const auto write = [](const std::string& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
  };

  std::string broken = good_weights;
  broken[7] = '\x7f';
  write(weights, broken);
  ExpectTrainRefused({}, {"model.safetensors"});
  write(weights, good_weights.substr(0, good_weights.size() - 1));
  ExpectTrainRefused({}, {"model.safetensors"});
  write(weights, good_weights);
  std::string first;
  std::string second;
  EditSafetensors(weights, [&](nlohmann::json& header) {
    std::vector<std::string> names;
    for (const auto& [name, entry] : header.items()) {
      if (name != "__metadata__") names.push_back(name);
    }
    first = names.at(0);
    second = names.at(1);
    for (const std::string& name : {first, second}) {
      header["renamed." + name] = header[name];
      header.erase(name);
    }
  });
  ExpectTrainRefused({}, {first, second, "renamed." + first, "renamed." + second});
  write(weights, good_weights);
  EditSafetensors(weights, [&](nlohmann::json& header) {
    header[first]["shape"] = {1, header[first]["shape"][0]};
  });
  ExpectTrainRefused({}, {first});
  write(weights, good_weights);

  const auto with = [&](const std::function<void(nlohmann::json&)>& edit) {
    nlohmann::json json = nlohmann::json::parse(good_config);
    edit(json);
    write(config, json.dump());
  };
  with([](nlohmann::json& json) { json.erase("n_embd"); });
  ExpectTrainRefused({}, {"config.json", "n_embd"});
  with([](nlohmann::json& json) { json["model_type"] = "gpt9"; });
  ExpectTrainRefused({}, {"config.json", "gpt9"});
  write(config, "{");
  ExpectTrainRefused({}, {"config.json"});
  write(config, good_config);
  ExpectTrainRefused({"--model", run_ / "nowhere"}, {"nowhere", "presets are gpt2-nano"});
  ExpectTrainRefused({"--load", run_ / "start"}, {"start", "expected a training checkpoint"});
  EXPECT_EQ(Call(Train({})).status, 0);
}

TEST_F(TrainCommandTest, ErrorsInTheMiddleOfARunAreOneLineToo) {
  ExpectTrainRefused({"--learning_rate", "1e30", "--grad_clip", "0"},
                     {"step 2: expected finite numbers, but the loss is", "h.0"});
}

TEST(InfiniTrainMain, PrintsItsCommandsAndTheirFlags) {
  const Result usage = Call({"--help"});
  EXPECT_EQ(usage.status, 0);
  EXPECT_EQ(Call({}).status, 2);
  for (const char* command : {"tokenize", "train", "generate", "evaluate", "export", "info"}) {
    EXPECT_THAT(usage.out, HasSubstr(std::string("  ") + command));
    for (const char* help : {"--help", "-h"}) {
      const Result result = Call({command, help});
      EXPECT_EQ(result.status, 0);
      EXPECT_THAT(result.out, HasSubstr("--"));
    }
  }
}

TEST(Commands, FromTextToText) {
  const TinyRun run;
  std::filesystem::create_directory(run / "text");
  for (int i = 0; i < 8; ++i) {
    std::ofstream file(run / ("text/" + std::to_string(i) + ".txt"));
    for (int line = 0; line < 40; ++line)
      file << "line " << line << " of text " << i << "\n";
  }
  Result result =
      Call({"tokenize", "--output", run / "data", "--val_fraction", "0.25", run / "text"});
  ASSERT_EQ(result.status, 0) << result.error;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("8 files"), HasSubstr("training: "), HasSubstr("validation: ")));
  ExpectRefused({"tokenize", "--output", run / "data", run / "text"}, {"data"});

  models::ModelConfig config = TinyConfig();
  config.transformer.vocab_size = 257;
  config.transformer.max_position_embeddings = 32;
  config.transformer.intermediate_size = 64;
  config.bos_token_id = 256;
  config.eos_token_ids = {256};
  models::SaveModel(models::CreateModel(config, 7), run / "bytes");
  result = Call({"train", "--model", run / "bytes", "--input_bin", run / "data/train_*.bin",
                 "--num_iteration", "40", "--sequence_length", "32", "--learning_rate", "0.01",
                 "--save", run / "model", "--device", "cpu"});
  ASSERT_EQ(result.status, 0) << result.error;

  result = Call({"evaluate", "--model", run / "model", "--input_bin", run / "data/val_*.bin"});
  ASSERT_EQ(result.status, 0) << result.error;
  EXPECT_THAT(result.out, AllOf(StartsWith("loss "), HasSubstr("perplexity")));
  double loss = 0.0;
  ASSERT_EQ(std::sscanf(result.out.c_str(), "loss %lf", &loss), 1);
  EXPECT_LT(loss, 3.5) << "a new model has ln 257 = 5.55";

  const auto loss_in = [&](const char* precision) {
    const Result evaluated = Call({"evaluate", "--model", run / "model", "--input_bin",
                                   run / "data/val_*.bin", "--matmul_precision", precision});
    double value = 0.0;
    EXPECT_EQ(std::sscanf(evaluated.out.c_str(), "loss %lf", &value), 1) << evaluated.error;
    return value;
  };
  EXPECT_EQ(loss_in("fp32"), loss);
  EXPECT_NEAR(loss_in("fp64"), loss, 1e-4 * loss);
  const double fp8_loss = loss_in("fp8");
  EXPECT_NEAR(fp8_loss, loss, 0.05 * loss);
  EXPECT_NE(fp8_loss, loss) << "FP8 was not used";
  EXPECT_EQ(loss_in("fp8"), fp8_loss);
  EXPECT_EQ(loss_in("fp32"), loss) << "a command must not leave its precision to the next";
  ExpectRefused({"evaluate", "--model", run / "model", "--input_bin", run / "data/val_*.bin",
                 "--matmul_precision", "fp16"},
                {"matmul_precision: expected fp64, fp32, tf32, bf16 or fp8, got fp16"});

  const Arguments generate = {"generate", "--model", run / "model", "--prompt", "line 1"};
  result = Call(generate + Arguments{"--max_new_tokens", "80"});
  ASSERT_EQ(result.status, 0) << result.error;
  EXPECT_THAT(result.out, StartsWith("line 1"));
  EXPECT_EQ(Call(generate + Arguments{"--max_new_tokens", "80"}).out, result.out) << "one seed";
  EXPECT_NE(Call(generate + Arguments{"--max_new_tokens", "80", "--seed", "2"}).out, result.out);
  const std::string greedy = Call(generate + Arguments{"--temperature", "0"}).out;
  EXPECT_EQ(Call(generate + Arguments{"--top_k", "1", "--seed", "9"}).out, greedy);
  EXPECT_EQ(Call(generate + Arguments{"--num_samples", "2", "--temperature", "0"}).out,
            "--- 1/2 ---\n" + greedy + "--- 2/2 ---\n" + greedy);
  // Texts in order, each as if it were alone, in whatever batches.
  const Arguments several = {
      "generate", "--model",  run / "model",          "--max_new_tokens", "30", "--prompt",
      "line 1",   "--prompt", "another, longer line", "--prompt",         "l"};
  const auto text_of = [&](const std::string& prompt) {
    return Call(
               {"generate", "--model", run / "model", "--max_new_tokens", "30", "--prompt", prompt})
        .out;
  };
  const std::string expected = "--- 1/3 ---\n" + text_of("line 1") + "--- 2/3 ---\n" +
                               text_of("another, longer line") + "--- 3/3 ---\n" + text_of("l");
  for (const char* batch_size : {"1", "2", "8"})
    EXPECT_EQ(Call(several + Arguments{"--batch_size", batch_size}).out, expected) << batch_size;
  ExpectRefused(generate + Arguments{"--batch_size", "0"},
                {"batch_size: expected a positive number"});
  ExpectRefused({"generate", "--model", run / "model", "--prompt", std::string(1000, 'x')},
                {"prompt: expected at most", "tokens, the model's positions, got"});
  const std::string stop = greedy.substr(8, 2);
  EXPECT_EQ(Call(generate + Arguments{"--temperature", "0", "--stop", stop}).out,
            greedy.substr(0, greedy.find(stop, 6)) + "\n");
  const Arguments in_fp8 = generate + Arguments{"--temperature", "0", "--matmul_precision", "fp8"};
  const std::string greedy_in_fp8 = Call(in_fp8).out;
  EXPECT_THAT(greedy_in_fp8, StartsWith("line 1"));
  EXPECT_EQ(Call(in_fp8 + Arguments{"--num_samples", "2"}).out,
            "--- 1/2 ---\n" + greedy_in_fp8 + "--- 2/2 ---\n" + greedy_in_fp8)
      << "a text left scales to the next";
  ExpectRefused(generate + Arguments{"--matmul_precision", "fp16"},
                {"matmul_precision: expected fp64, fp32, tf32, bf16 or fp8, got fp16"});
  ExpectRefused(generate + Arguments{"--stop", ""}, {"stop: expected text, got an empty string"});
  ExpectRefused(generate + Arguments{"--top_p", "0"}, {"top_p: expected 0 < top_p <= 1, got 0"});
  ExpectRefused(generate + Arguments{"--temperature", "-1"}, {"temperature: expected 0 or more"});

  result = Call({"export", "--model", run / "model", "--output", run / "exported.bin", "--format",
                 "llmc", "--dtype", "float32"});
  ASSERT_EQ(result.status, 0) << result.error;
  const Result evaluated =
      Call({"evaluate", "--model", run / "exported.bin", "--input_bin", run / "data/val_*.bin"});
  double exported_loss = 0.0;
  ASSERT_EQ(std::sscanf(evaluated.out.c_str(), "loss %lf", &exported_loss), 1) << evaluated.error;
  EXPECT_EQ(exported_loss, loss);
  ExpectRefused({"export", "--model", run / "model", "--output", run / "x", "--format", "onnx"},
                {"format: expected huggingface or llmc, got onnx"});
  ExpectRefused({"export", "--model", run / "model", "--output", run / "x", "--dtype", "int64"},
                {"dtype: expected float32, bfloat16 or float16, got int64"});

  EXPECT_THAT(Call({"info", run / "model"}).out, HasSubstr("vocabulary 257, 32 positions"));
  EXPECT_THAT(Call({"info", run / "train.bin"}).out,
              HasSubstr("60 tokens of 2 bytes, largest id 59"));
  std::filesystem::resize_file(std::string(run / "train.bin"), 1024 + 2 * 50 + 1);
  ExpectRefused({"info", run / "train.bin"},
                {"train.bin: the header announces 60 tokens, so expected 1144 bytes, found 1125 "
                 "bytes (50 tokens)"});
  std::filesystem::resize_file(std::string(run / "train.bin"), 100);
  ExpectRefused({"info", run / "train.bin"},
                {"train.bin: not a token file: expected a header of 1024 bytes, found 100 bytes"});
  EXPECT_THAT(Call({"info", "gpt2"}).out, HasSubstr("124439808 parameters"));
  EXPECT_THAT(Call({"info", "mixtral-8x7b"}).out,
              AllOf(HasSubstr("46702792704 parameters"),
                    HasSubstr("8 experts a layer, 2 for a token; trained with the load-balancing "
                              "loss times 0.02")));
  EXPECT_THAT(Call({"info"}).out, AllOf(HasSubstr("device cpu"), HasSubstr("preset gpt2-nano")));
  ExpectRefused({"info", run / "nothing"}, {"nothing"});
  ExpectRefused({"info", "gpt2", "llama3"}, {"unexpected argument 'llama3'"});
  ExpectRefused({"info", "a\r\x1b[2Jb\nc"}, {"a  [2Jb c: no such"});
  std::filesystem::create_directory(run / "empty");
  ExpectRefused({"info", run / "empty"},
                {run / "empty" + ": expected a model (config.json), adapters"});
  ExpectRefused({"generate", "--model", run / "train.bin"},
                {"train.bin: is neither a model folder nor an llm.c checkpoint"});
  ExpectRefused({"generate", "--model", "gpt2-nano"},
                {"gpt2-nano: no such model folder", "a preset of that name has no weights yet"});
  EXPECT_THAT(Call({"--version"}).out, ::testing::StartsWith("InfiniTrain "));
}

TEST(ProviderFlagsOfPrograms, ReachTheProvidersVariables) {
  static bool is_on = true;
  static std::string mode = "slow";
  RegisterProviderFlag({"chip_on", "on or off", &is_on});
  RegisterProviderFlag({"chip_mode", "how", &mode});
  EXPECT_EQ(Call({"info", "--device", "cpu", "--nochip_on", "--chip_mode=fast"}).status, 0);
  EXPECT_FALSE(is_on);
  EXPECT_EQ(mode, "fast");
  for (const char* command : {"train", "generate", "evaluate", "info", "conformance"}) {
    EXPECT_THAT(Call({command, "--help"}).out,
                AllOf(HasSubstr("Provider:"), HasSubstr("--chip_mode TEXT")));
  }
  ExpectRefused({"tokenize", "--chip_mode", "fast"}, {"unknown flag --chip_mode"});
}

}  // namespace
}  // namespace infini_train::trainer
