#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/data/corpus.h"

namespace infini_train::trainer {

/// What `train` (and `gpt2`) does; one field per flag, of the same name.
struct TrainOptions {
  // Model. Without --model: the checkpoint's where one is loaded, else default_model.
  std::string default_model = "gpt2-nano";
  std::string model;
  std::string llmc_filepath;
  std::string device = "auto";
  std::string dtype = "float32";
  std::string param_dtype = "float32";
  std::string matmul_precision = "fp32";
  std::uint64_t seed = 1337;

  // Data.
  std::vector<std::string> input_bin;
  std::vector<std::string> input_val_bin;
  std::vector<std::string> input_jsonl;
  std::vector<std::string> input_val_jsonl;
  bool packing = false;
  std::string long_records = "truncate";
  std::string tokenizer;
  std::int64_t batch_size = 4;
  std::int64_t sequence_length = 64;
  std::int64_t total_batch_size = 0;
  std::int64_t global_batch_size = 0;
  bool shuffle = true;
  bool overfit_single_batch = false;

  // Optimization.
  std::int64_t num_iteration = 10;
  double max_train_minutes = 0.0;
  std::string optimizer = "adamw";
  double learning_rate = 1e-4;
  double min_lr = 0.0;
  std::string lr_decay_style = "constant";
  std::int64_t lr_warmup_iters = 0;
  double lr_warmup_init = 0.0;
  std::int64_t lr_decay_iters = 0;
  std::int64_t lr_stable_iters = 0;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double momentum = 0.0;
  double grad_clip = 1.0;
  double dropout = -1.0;
  std::string recompute;
  bool activation_recompute = false;
  std::string recompute_granularity = "full";
  std::string recompute_method = "none";
  std::int64_t recompute_num_layers = 1;
  std::string attention = "auto";
  std::string graph = "auto";

  // LoRA; a negative number: its default, or what the loaded adapters have.
  std::int64_t lora_rank = 0;
  double lora_alpha = -1.0;
  double lora_dropout = -1.0;
  std::string lora_target_modules;
  std::string lora_save_path;
  std::string lora_load_path;

  // Reports.
  std::int64_t log_interval = 1;
  std::int64_t val_loss_every = 0;
  std::int64_t val_max_steps = 20;
  std::int64_t sample_every = 0;
  std::int64_t text_length = 64;
  std::string prompt;
  std::string metrics_file;
  std::string tensorboard_dir;
  double peak_tflops = 0.0;
  std::string profile;
  std::string profile_steps;

  // Checkpoints.
  std::string save;
  std::int64_t save_interval = 0;
  std::int64_t max_checkpoint_keep = 3;
  bool save_optimizer_state = true;
  std::string load;
  bool load_optimizer_state = true;

  std::int64_t num_threads = 0;

  // Degrees of parallelism: data over threads of this process.
  std::int64_t nthread_per_process = 1;
  double ddp_bucket_mb = 25.0;
  std::int64_t tensor_parallel = 1;
  bool sequence_parallel = false;
  std::int64_t pipeline_parallel = 1;
  std::int64_t virtual_pipeline_parallel = 1;
  std::int64_t zero_stage = 0;
};

/// How tokens are chosen; see sampler.h.
struct SamplingOptions {
  double temperature = 1.0;
  std::int64_t top_k = 0;
  double top_p = 1.0;
  std::uint64_t seed = 1337;
};

struct GenerateOptions {
  std::string model;
  std::string lora_load_path;
  std::string tokenizer;
  std::vector<std::string> prompt;
  std::int64_t max_new_tokens = 256;
  std::int64_t num_samples = 1;
  std::int64_t batch_size = 8;
  std::vector<std::string> stop;
  SamplingOptions sampling;
  std::string device = "auto";
  std::string dtype = "float32";
  std::string matmul_precision = "fp32";
  std::int64_t num_threads = 0;
};

struct EvaluateOptions {
  std::string model;
  std::string lora_load_path;
  std::vector<std::string> input_bin;
  std::vector<std::string> input_jsonl;
  std::string tokenizer;
  bool packing = false;
  std::string long_records = "truncate";
  std::int64_t batch_size = 4;
  std::int64_t sequence_length = 0;
  std::int64_t max_steps = 0;
  std::string device = "auto";
  std::string dtype = "float32";
  std::string matmul_precision = "fp32";
  std::int64_t num_threads = 0;
};

struct ExportOptions {
  std::string model;
  std::string lora_load_path;
  std::string output;
  std::string format = "huggingface";
  std::string dtype;
};

struct TokenizeCommandOptions {
  std::string tokenizer = "bytes";
  TokenizeOptions corpus;
};

struct InfoOptions {
  std::string path;
  std::string device = "auto";
};

struct ConformanceOptions {
  std::string device = "auto";
  std::string output_dir = "conformance";
  std::vector<std::string> ops;
  bool benchmark = true;
};

}  // namespace infini_train::trainer
