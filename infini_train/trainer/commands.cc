#include "infini_train/trainer/commands.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "infini_train/data/tokenizer.h"
#include "infini_train/models/model.h"
#include "infini_train/ops/matmul_precision.h"
#include "infini_train/trainer/data/input_data.h"
#include "infini_train/trainer/sampler.h"
#include "infini_train/trainer/setup.h"
#include "infini_train/trainer/stop_strings.h"

namespace infini_train::trainer {
namespace {

void RequirePositive(std::string_view flag, std::int64_t value) {
  if (value <= 0) throw Error(fmt::format("{}: expected a positive number, got {}", flag, value));
}

void RequireNotNegative(std::string_view flag, std::int64_t value) {
  if (value < 0) throw Error(fmt::format("{}: expected 0 or more, got {}", flag, value));
}

}  // namespace

void GenerateCommand(const GenerateOptions& options, std::FILE* out) {
  if (options.model.empty()) throw Error("model: expected a model folder, got none");
  RequirePositive("max_new_tokens", options.max_new_tokens);
  RequirePositive("num_samples", options.num_samples);
  CheckSamplingOptions(options.sampling);
  const StopStrings no_stop_yet(options.stop);
  ApplyNumThreads(options.num_threads);
  const std::optional<DataType> autocast_dtype = ParseAutocast(options.dtype);
  SetMatmulPrecision(ParseMatmulPrecision(options.matmul_precision));
  const std::filesystem::path path = ResolveModelPath(options.model);
  const std::filesystem::path folder =
      std::filesystem::is_directory(path) ? path : path.parent_path();
  const auto tokenizer = LoadOrFindTokenizer(options.tokenizer, {folder});
  if (!tokenizer) {
    throw Error(
        fmt::format("{}: holds no tokenizer.json; name one with --tokenizer", folder.string()));
  }
  const models::Model model =
      models::LoadModel(path, {ResolveDevice(options.device), DataType::kFloat32});
  model.module->Train(false);
  std::vector<std::int64_t> stop_tokens = model.config.eos_token_ids;
  stop_tokens.insert(stop_tokens.end(), tokenizer->eos_ids().begin(), tokenizer->eos_ids().end());
  const std::int64_t start_token = tokenizer->document_delimiter().value_or(
      static_cast<std::int32_t>(model.config.bos_token_id));
  std::vector<std::string> prompts = options.prompt;
  if (prompts.empty()) prompts.emplace_back();
  std::vector<std::vector<std::int64_t>> prompt_tokens;
  for (const std::string& prompt : prompts) {
    prompt_tokens.push_back(EncodePrompt(*tokenizer, prompt, model.config.transformer.vocab_size));
  }
  const Autocast autocast(autocast_dtype);
  Generator generator(options.sampling.seed);
  const auto print = [out](const std::string& text) {
    fmt::print(out, "{}", text);
    std::fflush(out);
  };
  const std::size_t total = prompts.size() * static_cast<std::size_t>(options.num_samples);
  std::size_t number = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    for (std::int64_t sample = 0; sample < options.num_samples; ++sample) {
      if (total > 1) fmt::print(out, "--- {}/{} ---\n", ++number, total);
      print(prompts[i]);
      StreamingDecoder decoder(tokenizer, /*skip_special_tokens=*/true,
                               /*is_continuation=*/!prompts[i].empty());
      StopStrings stop = no_stop_yet;
      Generate(model, prompt_tokens[i], start_token, options.max_new_tokens, stop_tokens,
               options.sampling, generator, [&](std::int64_t token) {
                 print(stop.Push(decoder.Push(static_cast<std::int32_t>(token))));
                 return !stop.found();
               });
      print(stop.Push(decoder.Finish()) + stop.Finish() + "\n");
    }
  }
}

void EvaluateCommand(const EvaluateOptions& options, std::FILE* out) {
  if (options.model.empty()) throw Error("model: expected a model folder or file, got none");
  InputDataOptions data;
  data.bin = options.input_bin;
  data.jsonl = options.input_jsonl;
  data.packing = options.packing;
  data.long_records = options.long_records;
  data.num_threads = options.num_threads;
  CheckInputData(data);
  RequirePositive("batch_size", options.batch_size);
  RequireNotNegative("sequence_length", options.sequence_length);
  RequireNotNegative("max_steps", options.max_steps);
  ApplyNumThreads(options.num_threads);
  const std::optional<DataType> autocast_dtype = ParseAutocast(options.dtype);
  SetMatmulPrecision(ParseMatmulPrecision(options.matmul_precision));
  const std::filesystem::path path = ResolveModelPath(options.model);
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!data.jsonl.empty()) {
    tokenizer = LoadOrFindTokenizer(
        options.tokenizer, {std::filesystem::is_directory(path) ? path : path.parent_path()});
  }
  const models::Model model =
      models::LoadModel(path, {ResolveDevice(options.device), DataType::kFloat32});
  const nn::TransformerConfig& config = model.config.transformer;
  const std::int64_t sequence_length =
      options.sequence_length > 0 ? options.sequence_length : config.max_position_embeddings;
  if (sequence_length > config.max_position_embeddings) {
    throw Error(fmt::format("sequence_length: expected at most the model's {} positions, got {}",
                            config.max_position_embeddings, sequence_length));
  }
  data.sequence_length = sequence_length;
  data.shortest_rows = options.sequence_length == 0;
  data.vocab_size = config.vocab_size;
  const InputData input(data, tokenizer.get());
  if (const std::string warning = input.Warning(); !warning.empty())
    fmt::print(out, "{}\n", warning);
  const EvaluationResult result =
      Evaluate(model, *input.Coverage({.batch_size = options.batch_size}), autocast_dtype,
               options.max_steps);
  fmt::print(out, "loss {:.6f} | perplexity {:.4f} | {} tokens\n", result.loss,
             std::exp(result.loss), result.num_targets);
}

void ExportCommand(const ExportOptions& options, std::FILE* out) {
  if (options.model.empty()) throw Error("model: expected a model folder or file, got none");
  if (options.output.empty()) throw Error("output: expected a folder or file to write, got none");
  std::optional<DataType> dtype;
  if (!options.dtype.empty()) {
    dtype = ParseDataType(options.dtype);
    if (!IsFloatingPoint(*dtype) || *dtype == DataType::kFloat64) {
      throw Error(
          fmt::format("dtype: expected float32, bfloat16 or float16, got {}", options.dtype));
    }
  }
  const std::filesystem::path path = ResolveModelPath(options.model);
  const models::Model model = models::LoadModel(path);
  if (options.format == "huggingface") {
    models::SaveModel(model, options.output, {.dtype = dtype});
    if (std::filesystem::is_directory(path)) {
      if (const auto tokenizer = FindTokenizer(path)) tokenizer->Save(options.output);
    }
  } else if (options.format == "llmc") {
    models::SaveLlmcCheckpoint(model, options.output, dtype.value_or(DataType::kFloat32));
  } else {
    throw Error(fmt::format("format: expected huggingface or llmc, got {}", options.format));
  }
  fmt::print(out, "wrote {}\n", options.output);
}

}  // namespace infini_train::trainer
