#include "infini_train/trainer/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <functional>
#include <type_traits>
#include <variant>

#include "infini_train/core/device/provider_flags.h"

namespace infini_train::trainer {
namespace {

/// "a,b" to "--a,--b".
std::string OptionNames(const std::string& names) {
  std::string result = "--";
  for (const char c : names)
    result += c == ',' ? std::string(",--") : std::string(1, c);
  return result;
}

std::vector<std::string> SplitNames(const std::string& names) {
  std::vector<std::string> result(1);
  for (const char c : names) {
    if (c == ',') {
      result.emplace_back();
    } else {
      result.back() += c;
    }
  }
  return result;
}

/// What is wrong with the text of a number; empty if nothing is.
template <typename T>
std::string CheckNumber(const std::string& text) {
  T value;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && rest == end) return "";
  const char* expected = std::is_floating_point_v<T> ? "a number"
                         : std::is_unsigned_v<T>     ? "an integer of 0 or more"
                                                     : "an integer";
  return fmt::format("expected {}, got {}", expected, text.empty() ? "nothing" : text);
}

/// What the provider of this build adds.
void AddProviderFlags(Flags& flags) {
  const std::vector<ProviderFlag> provider_flags = ProviderFlags();
  if (!provider_flags.empty()) flags.Section("Provider");
  for (const ProviderFlag& flag : provider_flags)
    std::visit([&](auto* value) { flags.Add(flag.name, *value, flag.help); }, flag.value);
}

/// Of the commands that run a model: where.
template <typename Options>
void AddDeviceFlag(Flags& flags, Options& o) {
  flags.Add("device", o.device, "cpu, cuda[:N], a provider's name, or auto");
}

/// Of the commands that run a model: how matrix products are computed.
template <typename Options>
void AddMatmulPrecisionFlag(Flags& flags, Options& o) {
  flags.Add("matmul_precision", o.matmul_precision,
            "of float32 matrix products: fp64, fp32, tf32 or bf16; fp8: linears of blocks in FP8");
}

/// Of the commands that take a model as it is.
template <typename Options>
void AddLoraFlag(Flags& flags, Options& o) {
  flags.Add("lora_load_path", o.lora_load_path,
            "folder with adapters, in PEFT's format, to merge into the model");
}

/// How JSON lines become sequences.
template <typename Options>
void AddSampleFlags(Flags& flags, Options& o) {
  flags.Add("packing", o.packing,
            "JSON lines: several samples in a sequence, each attending to itself alone");
  flags.Add("long_records", o.long_records,
            "JSON lines longer than a sequence: truncate, drop or error");
}

/// Where and how the commands that only run a model do it.
template <typename Options>
void AddInferenceFlags(Flags& flags, Options& o) {
  AddDeviceFlag(flags, o);
  flags.Add("dtype", o.dtype, "float32 or bfloat16");
  AddMatmulPrecisionFlag(flags, o);
  flags.Add("num_threads", o.num_threads, "CPU threads; 0 for all");
  AddProviderFlags(flags);
}

void AddModelFlags(Flags& flags, TrainOptions& o) {
  flags.Section("Model");
  flags.Add(
      "model", o.model,
      "folder, checkpoint file, or preset to train from scratch (see infini-train info); default " +
          o.default_model);
  flags.Add("llmc_filepath", o.llmc_filepath, "llm.c checkpoint to start from");
  AddDeviceFlag(flags, o);
  flags.Add("dtype", o.dtype,
            "float32, or bfloat16 for matrix products and activations in bfloat16 (autocast)");
  flags.Add(
      "param_dtype", o.param_dtype,
      "of the parameters: float32, or bfloat16 beside float32 copies that the optimizer keeps");
  AddMatmulPrecisionFlag(flags, o);
  flags.Add("dropout", o.dropout, "sets all dropout probabilities; negative keeps the model's own");
  flags.Add("seed", o.seed, "of initial weights, data order and dropout");
  flags.Add("num_threads", o.num_threads, "CPU threads; 0 for all");
}

void AddDataFlags(Flags& flags, TrainOptions& o) {
  flags.Section("Data");
  flags.Add("input_bin", o.input_bin,
            "token files to train on: path or glob pattern, may be repeated");
  flags.Add("input_val_bin", o.input_val_bin, "token files to validate on");
  flags.Add("input_jsonl", o.input_jsonl,
            "JSON lines to fine-tune on instead: file, folder or glob pattern, may be repeated");
  flags.Add("input_val_jsonl", o.input_val_jsonl, "JSON lines to validate on");
  AddSampleFlags(flags, o);
  flags.Add("tokenizer,tokenizer_bin", o.tokenizer,
            "for samples, and saved with checkpoints; default: the one beside data or model");
  flags.Add("batch_size,micro_batch_size", o.batch_size, "sequences of a micro-batch");
  flags.Add("sequence_length", o.sequence_length, "tokens of a sequence");
  flags.Add("total_batch_size", o.total_batch_size,
            "tokens of an optimizer step, gradients accumulated; 0 for one micro-batch");
  flags.Add("global_batch_size", o.global_batch_size,
            "sequences of an optimizer step, in place of total_batch_size; 0 leaves it to that");
  flags.Add("shuffle", o.shuffle, "visit the windows of each epoch in a random order");
  flags.Add("overfit_single_batch", o.overfit_single_batch, "train on the first batch only");
}

void AddOptimizationFlags(Flags& flags, TrainOptions& o) {
  flags.Section("Optimization");
  flags.Add("num_iteration", o.num_iteration,
            "optimizer steps in all, those before a resume included; 0: until --max_train_minutes");
  flags.Add("max_train_minutes", o.max_train_minutes,
            "stop and save after this time, the schedule fitted to it; 0 for no limit");
  flags.Add("optimizer", o.optimizer, "adamw (adam is the same) or sgd");
  flags.Add("learning_rate", o.learning_rate, "peak learning rate");
  flags.Add("min_lr", o.min_lr, "floor of the decay");
  flags.Add("lr_decay_style", o.lr_decay_style,
            "constant (none is the same), linear, cosine, inverse-square-root or wsd");
  flags.Add("lr_warmup_iters", o.lr_warmup_iters, "steps of linear warm-up");
  flags.Add("lr_warmup_init", o.lr_warmup_init, "learning rate at the start of the warm-up");
  flags.Add("lr_decay_iters", o.lr_decay_iters, "steps of the whole schedule; 0 for num_iteration");
  flags.Add("lr_stable_iters", o.lr_stable_iters, "wsd: steps at the peak before the decay");
  flags.Add("weight_decay", o.weight_decay, "decoupled, on matrices only");
  flags.Add("beta1", o.beta1, "AdamW");
  flags.Add("beta2", o.beta2, "AdamW");
  flags.Add("eps", o.eps, "AdamW");
  flags.Add("momentum", o.momentum, "SGD");
  flags.Add("grad_clip", o.grad_clip, "largest norm of the gradient; 0 for no clipping");
}

/// Goes on with the section "Optimization".
void AddComputationFlags(Flags& flags, TrainOptions& o) {
  flags.Add("recompute", o.recompute,
            "what backward computes again to save memory: none, selective (norms and conversions, "
            "which costs little) or block (all of each block)");
  flags.Add("activation_recompute", o.activation_recompute,
            "the same by the flags recompute_..., for choices in between");
  flags.Add("recompute_granularity", o.recompute_granularity,
            "full (of blocks), selective, or none to switch off");
  flags.Add("recompute_method", o.recompute_method,
            "none: every layer; uniform: groups of N layers; block: the first N layers");
  flags.Add("recompute_num_layers", o.recompute_num_layers, "N of recompute_method");
  flags.Add("attention", o.attention,
            "kernel of attention: auto, portable, or fused (the vendor's library, an error where "
            "it cannot)");
  flags.Add("graph", o.graph,
            "capture the step into a graph of the device and replay it: auto (where possible), on "
            "(an error where not) or off");
}

void AddLoraTrainingFlags(Flags& flags, TrainOptions& o) {
  flags.Section("LoRA");
  flags.Add("lora_rank", o.lora_rank, "trains low-rank adapters of this rank alone; 0 for none");
  flags.Add("lora_alpha", o.lora_alpha,
            "adapters are scaled by alpha / rank; negative: 16, or as the loaded ones have it");
  flags.Add("lora_dropout", o.lora_dropout,
            "of the adapters' inputs; negative: 0, or as the loaded ones have it");
  flags.Add(
      "lora_target_modules", o.lora_target_modules,
      "names of linear layers, a pattern, or all-linear; default c_attn,c_proj of GPT-2, else "
      "all-linear");
  flags.Add("lora_load_path", o.lora_load_path, "folder with adapters, in PEFT's format, to train");
  flags.Add("lora_save_path", o.lora_save_path, "folder for the adapters at the end");
}

void AddReportFlags(Flags& flags, TrainOptions& o) {
  flags.Section("Reports");
  flags.Add("log_interval", o.log_interval,
            "steps between lines when not on a terminal; 0 for none");
  flags.Add("val_loss_every", o.val_loss_every,
            "steps between validations; 0 for one at the end (with --input_val_bin or _jsonl)");
  flags.Add("val_max_steps", o.val_max_steps, "batches of a validation; 0 for all");
  flags.Add("freq_generate_txt,sample_every", o.sample_every,
            "steps between generated samples; 0 for none (needs a tokenizer)");
  flags.Add("text_length", o.text_length, "tokens of a sample, prompt included");
  flags.Add("prompt", o.prompt, "beginning of the samples");
  flags.Add("metrics_file", o.metrics_file, "JSON lines with the numbers of every step");
  flags.Add("tensorboard_dir", o.tensorboard_dir, "folder for TensorBoard event files");
  flags.Add("peak_tflops", o.peak_tflops,
            "the machine's peak in TFLOP/s, to report model FLOPS utilisation (MFU)");
  flags.Add("profile", o.profile,
            "folder for profile.txt (time, bytes and FLOP/s of each op) and trace.json (Chrome, "
            "Perfetto) of some steps");
  flags.Add("profile_steps", o.profile_steps,
            "FIRST:LAST of the steps to profile; default: three after the warm-up");
}

void AddCheckpointFlags(Flags& flags, TrainOptions& o) {
  flags.Section("Checkpoints");
  flags.Add("save", o.save, "folder for checkpoints; one is written at the end");
  flags.Add("save_interval", o.save_interval, "steps between checkpoints; 0 for the end only");
  flags.Add("max_checkpoint_keep", o.max_checkpoint_keep, "newest checkpoints kept; 0 for all");
  flags.Add("save_optimizer_state", o.save_optimizer_state,
            "so that a resumed run goes on exactly");
  flags.Add("load", o.load, "checkpoint, or folder of checkpoints (the latest), to resume from");
  flags.Add("load_optimizer_state", o.load_optimizer_state, "restore the optimizer when resuming");
}

void AddParallelismFlags(Flags& flags, TrainOptions& o) {
  flags.Section("Parallelism");
  flags.Add(
      "nthread_per_process", o.nthread_per_process,
      "data-parallel ranks, each a thread with a device of its own (cpu: a part of the cores)");
  flags.Add("ddp_bucket_mb", o.ddp_bucket_mb,
            "gradients that are reduced together, while backward goes on");
  flags.Add("tensor_parallel", o.tensor_parallel, "1 only");
  flags.Add("sequence_parallel", o.sequence_parallel, "false only");
  flags.Add("pipeline_parallel", o.pipeline_parallel, "1 only");
  flags.Add("virtual_pipeline_parallel", o.virtual_pipeline_parallel, "1 only");
  flags.Add("zero_stage", o.zero_stage, "0 only");
}

}  // namespace

Flags::Flags(const std::string& program, const std::string& description)
    : app_(std::make_unique<CLI::App>(description, program)), section_("Flags") {
  app_->get_formatter()->column_width(38);
}

Flags::~Flags() = default;

template <typename T>
void Flags::AddValue(const std::string& name, T& value, const std::string& help) {
  CLI::Option* option = app_->add_option(OptionNames(name), value, help)
                            ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
                            ->capture_default_str()
                            ->group(section_);
  if constexpr (std::is_arithmetic_v<T>) {
    option->check(std::function<std::string(const std::string&)>(&CheckNumber<T>));
  }
}

void Flags::Add(const std::string& name, std::string& value, const std::string& help) {
  AddValue(name, value, help);
}
void Flags::Add(const std::string& name, std::int64_t& value, const std::string& help) {
  AddValue(name, value, help);
}
void Flags::Add(const std::string& name, int& value, const std::string& help) {
  AddValue(name, value, help);
}
void Flags::Add(const std::string& name, std::uint64_t& value, const std::string& help) {
  AddValue(name, value, help);
}
void Flags::Add(const std::string& name, double& value, const std::string& help) {
  AddValue(name, value, help);
}

void Flags::Add(const std::string& name, bool& value, const std::string& help) {
  for (const std::string& single : SplitNames(name))
    booleans_.insert(single);
  app_->add_flag(OptionNames(name), value, help + (value ? " [true]" : " [false]"))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->group(section_);
}

void Flags::Add(const std::string& name, std::vector<std::string>& value, const std::string& help) {
  app_->add_option(OptionNames(name), value, help)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(section_);
}

void Flags::AddPositional(const std::string& name, std::vector<std::string>& value,
                          const std::string& help) {
  app_->add_option(name, value, help);
}

void Flags::AddPositional(const std::string& name, std::string& value, const std::string& help) {
  app_->add_option(name, value, help);
}

void AddTrainFlags(Flags& flags, TrainOptions& o) {
  AddModelFlags(flags, o);
  AddDataFlags(flags, o);
  AddOptimizationFlags(flags, o);
  AddComputationFlags(flags, o);
  AddLoraTrainingFlags(flags, o);
  AddReportFlags(flags, o);
  AddCheckpointFlags(flags, o);
  AddParallelismFlags(flags, o);
  AddProviderFlags(flags);
}

void AddTokenizeFlags(Flags& flags, TokenizeCommandOptions& o) {
  flags.AddPositional("input", o.corpus.inputs, "files and folders");
  flags.Add("tokenizer", o.tokenizer,
            "bytes, a tokenizer.json, a folder with one, or llm.c's tokenizer.bin");
  flags.Add("output", o.corpus.output_folder, "folder for the shards and the tokenizer");
  flags.Add("overwrite", o.corpus.overwrite, "replace the token files that the folder holds");
  flags.Add("document_separator", o.corpus.document_separator,
            "text that ends a document inside a file; empty: each file is one document");
  flags.Add("val_fraction", o.corpus.validation_fraction,
            "share of the text, in whole documents, that is kept for validation");
  flags.Add("seed", o.corpus.seed, "of the choice of validation documents");
  flags.Add("shard_tokens", o.corpus.tokens_per_shard, "tokens of a shard");
  flags.Add("num_threads", o.corpus.num_threads, "CPU threads; 0 for all");
}

void AddGenerateFlags(Flags& flags, GenerateOptions& o) {
  flags.Add("model", o.model, "model folder, checkpoint file, or folder of checkpoints");
  AddLoraFlag(flags, o);
  flags.Add("tokenizer", o.tokenizer, "default: the one in the model's folder");
  flags.Add("prompt", o.prompt, "text to continue; may be repeated");
  flags.Add("max_new_tokens", o.max_new_tokens, "most tokens of a continuation");
  flags.Add("num_samples", o.num_samples, "continuations of each prompt");
  flags.Add("batch_size", o.batch_size, "texts that are made at a time");
  flags.Add("stop", o.stop, "text that ends a continuation; may be repeated");
  flags.Add("temperature", o.sampling.temperature, "0 takes the most likely token");
  flags.Add("top_k", o.sampling.top_k, "draw from the k most likely tokens; 0 for all");
  flags.Add("top_p", o.sampling.top_p, "draw from the fewest tokens that reach this probability");
  flags.Add("seed", o.sampling.seed, "of the draws");
  AddInferenceFlags(flags, o);
}

void AddEvaluateFlags(Flags& flags, EvaluateOptions& o) {
  flags.Add("model", o.model, "model folder, checkpoint file, or folder of checkpoints");
  AddLoraFlag(flags, o);
  flags.Add("input_bin", o.input_bin, "token files: path or glob pattern, may be repeated");
  flags.Add("input_jsonl", o.input_jsonl,
            "JSON lines instead: file, folder or glob pattern, may be repeated");
  flags.Add("tokenizer", o.tokenizer, "of JSON lines; default: the one in the model's folder");
  AddSampleFlags(flags, o);
  flags.Add("batch_size", o.batch_size, "sequences of a batch");
  flags.Add("sequence_length", o.sequence_length, "0 for the model's positions, at most 2048");
  flags.Add("max_steps", o.max_steps, "batches; 0 for all");
  AddInferenceFlags(flags, o);
}

void AddExportFlags(Flags& flags, ExportOptions& o) {
  flags.Add("model", o.model, "model folder, checkpoint file, or folder of checkpoints");
  AddLoraFlag(flags, o);
  flags.Add("output", o.output, "folder (huggingface) or file (llmc) to write");
  flags.Add("format", o.format, "huggingface or llmc");
  flags.Add("dtype", o.dtype, "float32, bfloat16 or float16; default: the model's own");
}

void AddInfoFlags(Flags& flags, InfoOptions& o) {
  flags.AddPositional("path", o.path, "preset, model folder, checkpoint, adapters or token file");
  flags.Add("device", o.device,
            "list the settings of a device's runtime, and the ops that have kernels for it");
  AddProviderFlags(flags);
}

void AddConformanceFlags(Flags& flags, ConformanceOptions& o) {
  flags.Add("device", o.device, "device to check");
  flags.Add("output_dir", o.output_dir, "folder for conformance.json, .md and .html");
  flags.Add("ops", o.ops, "ops to check (default: all)");
  flags.Add("benchmark", o.benchmark, "measure the speed of each op");
  AddProviderFlags(flags);
}

}  // namespace infini_train::trainer
