#include "infini_train/trainer/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "infini_train/data/tokenizer.h"
#include "infini_train/models/model.h"
#include "infini_train/ops/matmul_precision.h"
#include "infini_train/trainer/data/input_data.h"
#include "infini_train/trainer/model_source.h"
#include "infini_train/trainer/sampler.h"
#include "infini_train/trainer/setup.h"
#include "infini_train/trainer/stop_strings.h"

namespace infini_train::trainer {
namespace {

/// Tokens of a sequence of a token file where the flag says nothing: all the positions of a model
/// may take more memory than there is.
constexpr std::int64_t kEvaluatedPositions = 2048;

void RequirePositive(std::string_view flag, std::int64_t value) {
  if (value <= 0) throw Error(fmt::format("{}: expected a positive number, got {}", flag, value));
}

void RequireNotNegative(std::string_view flag, std::int64_t value) {
  if (value < 0) throw Error(fmt::format("{}: expected 0 or more, got {}", flag, value));
}

/// Writes texts that are made together one after another: the first that is not finished as it
/// comes, the ones behind it when it is their turn.
class OrderedOutput {
 public:
  OrderedOutput(std::FILE* out, std::size_t count)
      : out_(out), waiting_(count), finished_(count, false) {}

  void Write(std::size_t i, const std::string& text) {
    waiting_[i] += text;
    Flush();
  }
  void Finish(std::size_t i) {
    finished_[i] = true;
    Flush();
  }
  bool finished(std::size_t i) const { return finished_[i]; }

 private:
  void Flush() {
    for (; current_ < waiting_.size(); ++current_) {
      fmt::print(out_, "{}", waiting_[current_]);
      waiting_[current_].clear();
      if (!finished_[current_]) break;
    }
    std::fflush(out_);
  }

  std::FILE* out_;
  std::vector<std::string> waiting_;
  std::vector<bool> finished_;
  std::size_t current_ = 0;  ///< the first that is not finished
};

struct Continuation {
  StreamingDecoder decoder;
  StopStrings stop;
  Generator generator;
};

}  // namespace

void GenerateCommand(const GenerateOptions& options, std::FILE* out) {
  if (options.model.empty()) throw Error("model: expected a model folder, got none");
  RequirePositive("max_new_tokens", options.max_new_tokens);
  RequirePositive("num_samples", options.num_samples);
  RequirePositive("batch_size", options.batch_size);
  CheckSamplingOptions(options.sampling);
  const StopStrings no_stop_yet(options.stop);
  ApplyNumThreads(options.num_threads);
  const std::optional<DataType> autocast_dtype = ParseAutocast(options.dtype);
  SetMatmulPrecision(ParseMatmulPrecision(options.matmul_precision));
  const ModelSource source = FindModelSource(options.model, options.lora_load_path);
  const auto tokenizer = LoadOrFindTokenizer(options.tokenizer, source.Folders());
  if (!tokenizer) {
    models::LoadModelConfig(source.model);  // what is no model has no tokenizer either
    throw Error(fmt::format("{}: holds no tokenizer.json; name one with --tokenizer",
                            source.Folders().back().string()));
  }
  const models::Model model = OpenModel(
      source, {ResolveDevice(options.device), autocast_dtype.value_or(DataType::kFloat32)});
  model.module->Train(false);
  std::vector<std::int64_t> stop_tokens = model.config.eos_token_ids;
  stop_tokens.insert(stop_tokens.end(), tokenizer->eos_ids().begin(), tokenizer->eos_ids().end());
  const std::int64_t start_token = tokenizer->document_delimiter().value_or(
      static_cast<std::int32_t>(model.config.bos_token_id));
  std::vector<std::string> prompts = options.prompt;
  if (prompts.empty()) prompts.emplace_back();
  std::vector<std::vector<std::int64_t>> prompt_tokens;
  for (const std::string& prompt : prompts) {
    prompt_tokens.push_back(EncodePrompt(*tokenizer, prompt, model.config.transformer));
  }
  const Autocast autocast(autocast_dtype);
  const auto samples = static_cast<std::size_t>(options.num_samples);
  const std::size_t total = prompts.size() * samples;
  OrderedOutput output(out, total);
  std::vector<Continuation> texts;
  std::vector<Prompt> batch;
  texts.reserve(total);
  for (std::size_t i = 0; i < total; ++i) {
    const std::size_t prompt = i / samples;
    texts.push_back({StreamingDecoder(tokenizer, /*skip_special_tokens=*/true,
                                      /*is_continuation=*/!prompts[prompt].empty()),
                     no_stop_yet, Generator()});
    // The numbers of a sample are its own, whatever else is made beside it.
    texts[i].generator.set_state(
        {.seed = options.sampling.seed, .offset = std::uint64_t{i % samples} << 32});
    batch.push_back({prompt_tokens[prompt], &texts[i].generator});
    if (total > 1) output.Write(i, fmt::format("--- {}/{} ---\n", i + 1, total));
    output.Write(i, prompts[prompt]);
  }
  const auto finish = [&](std::size_t i) {
    auto& [decoder, stop, generator] = texts[i];
    output.Write(i, stop.Push(decoder.Finish()) + stop.Finish() + "\n");
    output.Finish(i);
  };
  // In FP8 the texts of a batch would share scales.
  const bool is_fp8 = GetMatmulPrecision() == MatmulPrecision::kFp8;
  Generate(model, batch, start_token, options.max_new_tokens, stop_tokens, options.sampling,
           is_fp8 ? 1 : options.batch_size, [&](std::size_t i, std::int64_t token) {
             auto& [decoder, stop, generator] = texts[i];
             output.Write(i, stop.Push(decoder.Push(static_cast<std::int32_t>(token))));
             const bool ends = stop.found() || std::find(stop_tokens.begin(), stop_tokens.end(),
                                                         token) != stop_tokens.end();
             if (ends) finish(i);
             return !ends;
           });
  for (std::size_t i = 0; i < total; ++i) {
    if (!output.finished(i)) finish(i);
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
  const ModelSource source = FindModelSource(options.model, options.lora_load_path);
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!data.jsonl.empty()) tokenizer = LoadOrFindTokenizer(options.tokenizer, source.Folders());
  const models::Model model =
      OpenModel(source, {ResolveDevice(options.device), DataType::kFloat32});
  const nn::TransformerConfig& config = model.config.transformer;
  std::int64_t sequence_length = options.sequence_length;
  if (sequence_length == 0) {
    // Of samples the rows are no longer than the longest.
    sequence_length = data.jsonl.empty()
                          ? std::min(config.max_position_embeddings, kEvaluatedPositions)
                          : config.max_position_embeddings;
  }
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
    dtype = ParseDataTypeFlag("dtype", options.dtype,
                              {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16});
  }
  const bool is_llmc = options.format == "llmc";
  if (!is_llmc && options.format != "huggingface")
    throw Error(fmt::format("format: expected huggingface or llmc, got {}", options.format));
  const ModelSource source = FindModelSource(options.model, options.lora_load_path);
  const models::Model model = OpenModel(source);
  if (is_llmc) {
    models::SaveLlmcCheckpoint(model, options.output, dtype.value_or(DataType::kFloat32));
  } else {
    models::SaveModel(model, options.output, {.dtype = dtype});
    if (const auto tokenizer = LoadOrFindTokenizer("", source.Folders()))
      tokenizer->Save(options.output);
  }
  fmt::print(out, "wrote {}\n", options.output);
}

}  // namespace infini_train::trainer
