// One training step, timed: the contract is in benchmarks/README.md.

#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"
#include "infini_train/core/threads.h"
#include "infini_train/models/lora.h"
#include "infini_train/models/model.h"
#include "infini_train/ops/matmul_precision.h"
#include "infini_train/optim/optimizer.h"
#include "infini_train/trainer/profile/step_profiler.h"
#include "infini_train/trainer/setup.h"
#include "infini_train/trainer/step/step_runner.h"

namespace infini_train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kGpt2Vocabulary = 50304;  // padded; its tokens are not
constexpr std::int64_t kLargestToken = 50257;
constexpr int kNumBatches = 4;
constexpr int kProfiledSteps = 3;
constexpr double kGradClip = 1.0;

using Recompute = nn::ActivationCheckpointing::Method;
const std::map<std::string, Recompute> kRecompute = {{"none", Recompute::kNone},
                                                     {"block", Recompute::kUniform},
                                                     {"selective", Recompute::kSelective}};

struct Options {
  std::string model = "gpt2";
  std::string device = "cpu";
  std::string dtype = "float32";
  std::string param_dtype = "float32";
  std::string matmul_precision = "fp32";
  std::int64_t batch_size = 4;
  std::int64_t sequence_length = 64;
  std::string graph = "auto";
  std::string recompute = "none";
  std::int64_t lora_rank = 0;
  std::string lora_target_modules;
  bool deterministic = true;
  std::string profile;
  std::string weights;
  double learning_rate = 1e-4;
  int steps = 20;
  int threads = 0;
};

/// A "Vm…: n kB" line of /proc/self/status, in bytes.
std::int64_t StatusBytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == key + ":") {
      std::int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

/// SplitMix64 (Steele et al. 2014), the token source that both programs share.
class SplitMix64 {
 public:
  std::uint64_t operator()() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_ = 0;
};

/// Of tensors that no other shares memory with.
std::int64_t Bytes(const NamedTensors& tensors) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors)
    bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

std::int64_t NumElements(const NamedTensors& tensors) {
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : tensors)
    elements += tensor.numel();
  return elements;
}

/// The parameters that training changes.
NamedTensors TrainedParameters(const models::Model& model) {
  NamedTensors trained = model.module->NamedParameters();
  std::erase_if(trained, [](const auto& parameter) { return !parameter.second.requires_grad(); });
  return trained;
}

std::vector<TokenBatch> MakeBatches(const Options& o, std::int64_t vocab_size) {
  const std::uint64_t modulus = static_cast<std::uint64_t>(std::min(vocab_size, kLargestToken));
  SplitMix64 next;
  std::vector<TokenBatch> batches;
  for (int i = 0; i < kNumBatches; ++i) {
    TokenBatch& batch = batches.emplace_back();
    batch.batch_size = o.batch_size;
    batch.sequence_length = o.sequence_length;
    batch.num_targets = o.batch_size * o.sequence_length;
    for (std::int64_t row = 0; row < o.batch_size; ++row) {
      for (std::int64_t t = 0; t <= o.sequence_length; ++t) {
        const auto token = static_cast<std::int64_t>(next() % modulus);
        if (t < o.sequence_length) batch.inputs.push_back(token);
        if (t > 0) batch.targets.push_back(token);
      }
    }
  }
  return batches;
}

/// Takes the weights of a folder, which is made of the model's own where there is none.
void ShareWeights(const models::Model& model, const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder)) models::SaveModel(model, folder);
  const Device device = model.module->head_weight().device();
  model.module->LoadStateDict(models::LoadModel(folder, {device}).module->StateDict());
}

void Run(const Options& o) {
  const Clock::time_point start = Clock::now();
  if (o.threads > 0) SetNumThreads(o.threads);
  const Device device = trainer::ResolveDevice(o.device);
  if (!o.deterministic) SetDeterministic(false);
  SetMatmulPrecision(ParseMatmulPrecision(o.matmul_precision));
  const std::optional<DataType> autocast_dtype =
      o.dtype == "float32" ? std::nullopt : std::optional(ParseDataType(o.dtype));
  models::ModelConfig config;
  if (const models::Preset* preset = models::FindPreset(o.model)) {
    config = preset->config;
    if (config.family == "gpt2") config.transformer.vocab_size = kGpt2Vocabulary;
  } else {
    config = models::LoadModelConfig(o.model);
  }
  nn::TransformerConfig& t = config.transformer;
  t.embedding_dropout = t.attention_dropout = t.residual_dropout = 0.0;
  t.max_position_embeddings = std::max(t.max_position_embeddings, o.sequence_length);
  const std::int64_t rss_before_model = StatusBytes("VmHWM");
  const models::Model model =
      models::CreateModel(config, 0, {device, ParseDataType(o.param_dtype)});
  if (!o.weights.empty()) ShareWeights(model, o.weights);
  model.module->set_activation_checkpointing({kRecompute.at(o.recompute), 1});
  std::optional<models::Lora> lora;
  if (o.lora_rank > 0) {
    lora.emplace(model,
                 models::LoraOptions{.rank = o.lora_rank,
                                     .targets = models::ParseLoraTargets(o.lora_target_modules)},
                 0);
  }
  const NamedTensors trained = TrainedParameters(model);
  optim::AdamW optimizer(optim::DecayMatricesOnly(trained, 0.1), {0.9, 0.95, 1e-8});
  trainer::StepRunner runner(model, optimizer,
                             {autocast_dtype, kGradClip, trainer::ParseGraphMode(o.graph)},
                             [](const std::string& text) { fmt::print(stderr, "{}\n", text); });
  const std::vector<TokenBatch> batches = MakeBatches(o, t.vocab_size);
  const double tokens = static_cast<double>(o.batch_size * o.sequence_length);
  std::vector<double> milliseconds;
  double seconds_to_first_step = 0.0;
  std::vector<double> losses, grad_norms;
  std::size_t peak_device_bytes = 0;
  for (int step = 0; step < o.steps; ++step) {
    const TokenBatch& batch = batches[static_cast<std::size_t>(step % kNumBatches)];
    allocator::ResetPeakStats(device);
    Synchronize(device);
    const Clock::time_point begin = Clock::now();
    const trainer::StepResult result = runner.Run({&batch, 1}, o.learning_rate);
    Synchronize(device);
    const Clock::time_point end = Clock::now();
    losses.push_back(result.loss);
    grad_norms.push_back(result.grad_norm);
    milliseconds.push_back(std::chrono::duration<double, std::milli>(end - begin).count());
    if (step == 0) seconds_to_first_step = std::chrono::duration<double>(end - start).count();
    const std::size_t used = allocator::Stats(device).peak_allocated;
    peak_device_bytes =
        std::max(peak_device_bytes, used + (runner.replayed() ? runner.graph_bytes() : 0));
  }
  const bool captured = runner.replayed();
  if (!o.profile.empty()) {
    // Steps of their own, which are not in the figures.
    trainer::StepProfiler profiler(o.profile, {o.steps + 1, o.steps + kProfiledSteps}, device);
    for (int step = o.steps + 1; !profiler.IsDone(); ++step) {
      profiler.BeforeStep(step);
      runner.Run({&batches[static_cast<std::size_t>(step % kNumBatches)], 1}, o.learning_rate);
      profiler.AfterStep(step);
    }
    fmt::print(stderr, "{}", profiler.Write());
  }
  std::vector<double> counted(milliseconds.begin() + std::min(10, o.steps / 2), milliseconds.end());
  std::sort(counted.begin(), counted.end());
  const double step_ms = counted[counted.size() / 2];
  nlohmann::ordered_json json;
  json["tokens_per_second"] = tokens / step_ms * 1e3;
  json["step_ms"] = step_ms;
  json["gflops"] = t.TrainingFlopsPerToken(o.sequence_length) * tokens / step_ms * 1e-6;
  json["peak_rss_bytes"] = StatusBytes("VmHWM");
  json["rss_before_model_bytes"] = rss_before_model;
  json["peak_device_bytes"] = peak_device_bytes;
  json["parameter_bytes"] = Bytes(model.module->NamedParameters());
  json["trained_parameters"] = NumElements(trained);
  json["optimizer_state_bytes"] = Bytes(optimizer.StateDict());
  json["captured"] = captured;
  json["seconds_to_first_step"] = seconds_to_first_step;
  json["loss"] = losses.back();
  json["losses"] = losses;
  json["grad_norms"] = grad_norms;
  fmt::print("{}\n", json.dump());
}

}  // namespace
}  // namespace infini_train

int main(int argc, char** argv) {
  infini_train::Options options;
  bool json = true;
  CLI::App app("Times training steps of a model and prints one JSON line.");
  app.add_option("--model", options.model, "preset, or folder with a config.json");
  app.add_option("--device", options.device);
  app.add_option("--dtype", options.dtype, "float32, or bfloat16 for autocast");
  app.add_option("--param_dtype", options.param_dtype,
                 "float32, or bfloat16 for parameters in bfloat16 with float32 masters");
  app.add_option("--matmul_precision", options.matmul_precision, "fp64, fp32, tf32, bf16 or fp8");
  app.add_option("--batch_size", options.batch_size)->check(CLI::PositiveNumber);
  app.add_option("--sequence_length", options.sequence_length)->check(CLI::PositiveNumber);
  app.add_option("--graph", options.graph, "auto, on or off: whether the step is captured");
  app.add_option("--recompute", options.recompute,
                 "none, block or selective: what backward makes again")
      ->check(CLI::IsMember(infini_train::kRecompute));
  app.add_option("--lora_rank", options.lora_rank, "trains adapters of this rank alone; 0 for none")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--lora_target_modules", options.lora_target_modules,
                 "layers with adapters, as in infini-train train");
  app.add_option(
      "--deterministic", options.deterministic,
      "false: kernels may give other bits each time, as with INFINI_TRAIN_DETERMINISTIC=0");
  app.add_option("--profile", options.profile,
                 "folder for the profile of three more steps, which run uncaptured");
  app.add_option("--weights", options.weights,
                 "Hugging Face folder to start from; it is made where there is none");
  app.add_option("--learning_rate", options.learning_rate)->check(CLI::NonNegativeNumber);
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "0 for all")->check(CLI::NonNegativeNumber);
  app.add_flag("--json", json, "accepted; JSON is the only format");
  CLI11_PARSE(app, argc, argv);
  try {
    infini_train::Run(options);
  } catch (const infini_train::Error& error) {
    fmt::print(stderr, "train_step: {}\n", error.what());
    return 2;
  }
  return 0;
}
