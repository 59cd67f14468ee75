#include "infini_train/trainer/train_checks.h"

#include <fmt/format.h>

#include <cmath>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/ops/attention_kernel.h"
#include "infini_train/ops/kernel_library.h"
#include "infini_train/ops/matmul_precision.h"
#include "infini_train/trainer/setup.h"
#include "infini_train/trainer/step/step_runner.h"

namespace infini_train::trainer {
namespace {

void Require(bool condition, std::string_view flag, std::string_view expected, const auto& found) {
  if (!condition) throw Error(fmt::format("{}: expected {}, got {}", flag, expected, found));
}

/// The folder or file of a model that is no preset.
std::filesystem::path FindModel(const std::string& model) {
  if (!PathExists(model)) {
    std::string names;
    for (const models::Preset& preset : models::Presets())
      names += " " + preset.name;
    throw Error(fmt::format("model: {} is no folder, checkpoint file or preset; presets are{}",
                            model, names));
  }
  return ResolveModelPath(model);
}

enum class OptimizerKind : std::uint8_t { kAdamW, kSgd };

OptimizerKind ParseOptimizer(const std::string& name) {
  if (name == "adamw" || name == "adam") return OptimizerKind::kAdamW;
  if (name == "sgd") return OptimizerKind::kSgd;
  throw Error(fmt::format("optimizer: expected adamw or sgd, got {}", name));
}

models::ModelConfig ConfigOf(const std::string& model) {
  if (const models::Preset* preset = models::FindPreset(model)) return preset->config;
  return models::LoadModelConfig(FindModel(model));
}

}  // namespace

DataType ParseParamDataType(const TrainOptions& options) {
  const DataType parsed = ParseDataTypeFlag("param_dtype", options.param_dtype,
                                            {DataType::kFloat32, DataType::kBFloat16});
  if (parsed == DataType::kFloat32) return parsed;
  if (ParseAutocast(options.dtype) != parsed) {
    throw Error(fmt::format("param_dtype: bfloat16 needs --dtype bfloat16, got {}", options.dtype));
  }
  return parsed;
}

std::int64_t CheckTrainOptions(const TrainOptions& o) {
  if (o.profile.empty() && !o.profile_steps.empty()) {
    throw Error("profile_steps: expected a folder for the profile (--profile), got none");
  }
  const std::pair<const char*, std::int64_t> positive[] = {
      {"batch_size", o.batch_size},
      {"sequence_length", o.sequence_length},
      {"recompute_num_layers", o.recompute_num_layers},
      {"text_length", o.text_length}};
  // Products of three such numbers stay in 64 bits.
  for (const auto& [flag, value] : positive)
    Require(value >= 1 && value <= (std::int64_t{1} << 20), flag, "1 to 1048576", value);
  const std::pair<const char*, std::int64_t> not_negative[] = {
      {"num_iteration", o.num_iteration},     {"log_interval", o.log_interval},
      {"val_loss_every", o.val_loss_every},   {"val_max_steps", o.val_max_steps},
      {"freq_generate_txt", o.sample_every},  {"save_interval", o.save_interval},
      {"lr_warmup_iters", o.lr_warmup_iters}, {"lr_decay_iters", o.lr_decay_iters},
      {"lr_stable_iters", o.lr_stable_iters}, {"max_checkpoint_keep", o.max_checkpoint_keep}};
  for (const auto& [flag, value] : not_negative)
    Require(value >= 0, flag, "0 or more", value);
  for (const auto& [flag, value] : {std::pair("total_batch_size", o.total_batch_size),
                                    std::pair("global_batch_size", o.global_batch_size)}) {
    Require(value >= 0 && value < (std::int64_t{1} << 31), flag, "0 or a positive 31-bit number",
            value);
  }
  const std::pair<const char*, double> real_not_negative[] = {
      {"weight_decay", o.weight_decay},
      {"grad_clip", o.grad_clip},
      {"momentum", o.momentum},
      {"peak_tflops", o.peak_tflops},
      {"max_train_minutes", o.max_train_minutes}};
  for (const auto& [flag, value] : real_not_negative) {
    Require(value >= 0.0 && std::isfinite(value), flag, "0 or more", value);
  }
  if (o.num_iteration == 0) {
    Require(o.max_train_minutes > 0.0, "num_iteration", "steps to make, or --max_train_minutes", 0);
  }
  Require(o.beta1 >= 0.0 && o.beta1 < 1.0, "beta1", "0 <= beta1 < 1", o.beta1);
  Require(o.beta2 >= 0.0 && o.beta2 < 1.0, "beta2", "0 <= beta2 < 1", o.beta2);
  Require(o.eps > 0.0, "eps", "a positive number", o.eps);
  Require(o.dropout < 1.0, "dropout", "0 <= dropout < 1", o.dropout);
  Require(o.nthread_per_process > 0, "nthread_per_process", "1 or more", o.nthread_per_process);
  Require(o.ddp_bucket_mb > 0.0 && std::isfinite(o.ddp_bucket_mb), "ddp_bucket_mb",
          "a positive number", o.ddp_bucket_mb);
  const std::pair<const char*, std::int64_t> degrees[] = {
      {"tensor_parallel", o.tensor_parallel},
      {"pipeline_parallel", o.pipeline_parallel},
      {"virtual_pipeline_parallel", o.virtual_pipeline_parallel}};
  for (const auto& [flag, value] : degrees) {
    Require(value == 1, flag, "1 (this version has data parallelism alone)", value);
  }
  Require(!o.sequence_parallel, "sequence_parallel", "false without tensor parallelism", true);
  Require(o.zero_stage == 0, "zero_stage", "0 (this version shards no states)", o.zero_stage);
  ParseGraphMode(o.graph);
  ParseAutocast(o.dtype);
  ParseParamDataType(o);
  ParseMatmulPrecision(o.matmul_precision);
  ParseAttentionKernel(o.attention);
  MakeCheckpointing(o);
  MakeSchedule(o);
  ParseOptimizer(o.optimizer);
  if (o.save_interval > 0) {
    Require(!o.save.empty(), "save_interval", "--save to say where", "none");
  }
  const std::int64_t ranks = o.nthread_per_process;
  if (o.global_batch_size > 0) {
    Require(o.total_batch_size == 0, "global_batch_size", "only one of it and total_batch_size",
            "both");
    const bool divides =
        o.global_batch_size % o.batch_size == 0 && o.global_batch_size / o.batch_size % ranks == 0;
    if (!divides) {
      throw Error(fmt::format(
          "global_batch_size: expected a multiple of batch_size{} = {}, got {}",
          ranks > 1 ? fmt::format(" * nthread_per_process = {} * {}", o.batch_size, ranks) : "",
          o.batch_size * ranks, o.global_batch_size));
    }
    return o.global_batch_size / o.batch_size / ranks;
  }
  const std::int64_t micro = o.batch_size * o.sequence_length;
  if (o.total_batch_size == 0) return 1;
  if (o.total_batch_size % micro != 0 || o.total_batch_size / micro % ranks != 0) {
    throw Error(fmt::format(
        "total_batch_size: expected a multiple of batch_size * sequence_length{} = {} "
        "* {}{} = {}, got {}",
        ranks > 1 ? " * nthread_per_process" : "", o.batch_size, o.sequence_length,
        ranks > 1 ? fmt::format(" * {}", ranks) : "", micro * ranks, o.total_batch_size));
  }
  return o.total_batch_size / micro / ranks;
}

optim::LrSchedule MakeSchedule(const TrainOptions& o) {
  optim::LrSchedule schedule;
  schedule.style =
      optim::ParseLrDecayStyle(o.lr_decay_style == "none" ? "constant" : o.lr_decay_style);
  schedule.learning_rate = o.learning_rate;
  schedule.min_lr = o.min_lr;
  schedule.warmup_steps = o.lr_warmup_iters;
  schedule.warmup_init = o.lr_warmup_init;
  // Where time alone is the limit, the schedule is cut into this many parts of it.
  constexpr std::int64_t kTimeParts = 1'000'000;
  schedule.decay_steps = o.lr_decay_iters > 0  ? o.lr_decay_iters
                         : o.num_iteration > 0 ? o.num_iteration
                                               : kTimeParts;
  schedule.stable_steps = o.lr_stable_iters;
  schedule.Validate();
  return schedule;
}

std::filesystem::path WeightsPath(const TrainOptions& options,
                                  const std::filesystem::path& resume_from) {
  if (!resume_from.empty()) return resume_from;
  if (!options.llmc_filepath.empty()) return options.llmc_filepath;
  const std::string& model = options.model.empty() ? options.default_model : options.model;
  return models::FindPreset(model) != nullptr ? std::filesystem::path() : FindModel(model);
}

models::ModelConfig ChooseModelConfig(const TrainOptions& options,
                                      const std::filesystem::path& resume_from,
                                      std::int64_t vocab_size) {
  const std::string& name = options.model.empty() ? options.default_model : options.model;
  const bool new_model = models::FindPreset(name) != nullptr;
  models::ModelConfig wanted;
  const std::filesystem::path weights = WeightsPath(options, resume_from);
  if (weights.empty() || (!options.model.empty() && !resume_from.empty())) {
    wanted = ConfigOf(name);
    if (new_model && vocab_size > 0) wanted.transformer.vocab_size = vocab_size;
  }
  if (weights.empty()) return wanted;
  models::ModelConfig config = models::LoadModelConfig(weights);
  if (!options.model.empty() && !resume_from.empty()) {
    const std::vector<std::string> differences = models::Differences(wanted, config);
    if (!differences.empty()) {
      throw Error(fmt::format("{} holds another model than --model {}: {}", resume_from.string(),
                              name, fmt::join(differences, "; ")));
    }
  }
  return config;
}

void CheckFits(const TrainOptions& options, const models::ModelConfig& config) {
  const std::int64_t positions = config.transformer.max_position_embeddings;
  if (options.sequence_length > positions) {
    throw Error(fmt::format("sequence_length: expected at most the model's {} positions, got {}",
                            positions, options.sequence_length));
  }
}

void ApplyAttentionKernel(const std::string& name, Device device) {
  const AttentionKernel kernel = ParseAttentionKernel(name);
  if (kernel == AttentionKernel::kFused && KernelLibrary(device.type(), OpId::kAttention).empty()) {
    throw Error(
        fmt::format("attention: {} has no fused kernel of a library; expected auto or "
                    "portable",
                    device.ToString()));
  }
  SetAttentionKernel(kernel);
}

nn::ActivationCheckpointing MakeCheckpointing(const TrainOptions& o) {
  using Method = nn::ActivationCheckpointing::Method;
  if (!o.recompute.empty()) {
    if (o.activation_recompute) {
      throw Error(fmt::format("recompute: expected none beside --activation_recompute, got {}",
                              o.recompute));
    }
    if (o.recompute == "none") return {};
    if (o.recompute == "block") return {Method::kUniform, 1};
    if (o.recompute == "selective") return {Method::kSelective, 1};
    throw Error(fmt::format("recompute: expected none, block or selective, got {}", o.recompute));
  }
  const bool is_selective = o.recompute_granularity == "selective";
  const bool is_off = !o.activation_recompute || o.recompute_granularity == "none";
  Require(is_selective || o.recompute_granularity == "full" || o.recompute_granularity == "none",
          "recompute_granularity", "none, selective or full", o.recompute_granularity);
  const bool is_block = o.recompute_method == "block";
  const bool is_plain = o.recompute_method == "none";
  Require(is_block || is_plain || o.recompute_method == "uniform", "recompute_method",
          "none, uniform or block", o.recompute_method);
  if (is_off) return {};
  if (is_selective) {
    Require(is_plain, "recompute_method", "none with selective recomputation", o.recompute_method);
    return {Method::kSelective, 1};
  }
  if (is_plain) return {Method::kUniform, 1};
  return {is_block ? Method::kBlock : Method::kUniform, o.recompute_num_layers};
}

std::unique_ptr<optim::Optimizer> MakeOptimizer(const TrainOptions& o, const models::Model& model) {
  NamedTensors parameters = model.module->NamedParameters();
  std::erase_if(parameters, [](const auto& entry) { return !entry.second.requires_grad(); });
  auto groups = optim::DecayMatricesOnly(parameters, o.weight_decay);
  if (ParseOptimizer(o.optimizer) == OptimizerKind::kSgd) {
    return std::make_unique<optim::Sgd>(std::move(groups),
                                        optim::Sgd::Options{o.momentum, 0.0, false});
  }
  return std::make_unique<optim::AdamW>(std::move(groups),
                                        optim::AdamW::Options{o.beta1, o.beta2, o.eps});
}

}  // namespace infini_train::trainer
