#include "infini_train/trainer/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/checkpoint/training_checkpoint.h"
#include "infini_train/core/device/allocator.h"
#include "infini_train/core/error.h"
#include "infini_train/core/generator.h"
#include "infini_train/core/threads.h"
#include "infini_train/data/data_loader.h"
#include "infini_train/models/model.h"
#include "infini_train/ops/matmul_precision.h"
#include "infini_train/optim/optimizer.h"
#include "infini_train/parallel/data_parallel.h"
#include "infini_train/parallel/parallel_context.h"
#include "infini_train/parallel/thread_ranks.h"
#include "infini_train/trainer/data/run_inputs.h"
#include "infini_train/trainer/diagnose.h"
#include "infini_train/trainer/metrics.h"
#include "infini_train/trainer/model_source.h"
#include "infini_train/trainer/profile/step_profiler.h"
#include "infini_train/trainer/progress.h"
#include "infini_train/trainer/sampler.h"
#include "infini_train/trainer/setup.h"
#include "infini_train/trainer/signals.h"
#include "infini_train/trainer/step/run_pace.h"
#include "infini_train/trainer/step/step_runner.h"
#include "infini_train/trainer/train_checks.h"

namespace infini_train::trainer {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Runs what restores the content of a file, whose name errors then begin with.
template <typename Restore>
void RestoreFrom(const std::filesystem::path& file, const Restore& restore) {
  try {
    restore();
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", file.string(), error.what()));
  }
}

class Trainer {
 public:
  Trainer(const TrainOptions& options, const RunInputs& inputs, parallel::ParallelContext& context,
          std::FILE* out);

  int Run();

 private:
  /// What decides over the next step, the same on all ranks.
  struct Plan {
    bool goes_on = false;
    double learning_rate = 0.0;
  };
  Plan MakePlan(std::int64_t step) const;
  void Resume(const std::filesystem::path& folder);
  void LoadFp8Scales(const checkpoint::TrainingState& state, const std::filesystem::path& folder);
  /// `step` is counted from 1.
  StepResult TrainStep(std::int64_t step, double learning_rate);
  [[noreturn]] void ReportNonFinite(std::int64_t step, double loss,
                                    const std::vector<TokenBatch>& batches);
  std::vector<TokenBatch> NextBatches();
  /// Tokens of a step, of all ranks.
  std::int64_t TokensPerStep() const;
  /// The state of random numbers that a rank draws from when rank 0 has `first`.
  Generator::State RandomOfRank(Generator::State first) const;
  bool IsDone(std::int64_t step) const;
  StepReport MakeReport(std::int64_t step, const StepResult& result, double learning_rate,
                        double seconds);
  void Validate(std::int64_t step);
  void PrepareSamples(const nn::TransformerConfig& config);
  void Sample(std::int64_t step);
  void Save(std::int64_t step);
  void WriteProfile();
  void WriteMetrics(std::int64_t step, const Metrics& metrics);
  std::string ResumeHint() const;

  TrainOptions options_;
  const RunInputs& inputs_;
  parallel::ParallelContext& context_;
  ProgressPrinter progress_;
  Device device_;
  std::optional<DataType> autocast_;
  RunPace pace_;

  models::Model model_;
  std::optional<models::Lora> lora_;
  std::string lora_base_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<parallel::DataParallel> data_parallel_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<DataLoader> loader_;
  std::shared_ptr<const BatchSource> validation_;  ///< or null
  std::optional<std::vector<TokenBatch>> only_batches_;
  std::vector<std::int64_t> sample_prompt_;
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
  std::unique_ptr<StepProfiler> profiler_;
  std::int64_t first_step_ = 0;
  std::string saved_to_;
  std::optional<RouterReport> last_routers_;
};

Trainer::Trainer(const TrainOptions& options, const RunInputs& inputs,
                 parallel::ParallelContext& context, std::FILE* out)
    : options_(options),
      inputs_(inputs),
      context_(context),
      progress_(out),
      device_(context.device()),
      autocast_(ParseAutocast(options.dtype)),
      pace_(MakeSchedule(options), options.num_iteration, options.max_train_minutes) {
  ApplyNumThreads(options_.num_threads, context_.world_size());
  SetMatmulPrecision(ParseMatmulPrecision(options_.matmul_precision));
  ApplyAttentionKernel(options_.attention, device_);
  DefaultGenerator().set_state(RandomOfRank({.seed = options_.seed}));

  const std::filesystem::path& resume_from = inputs_.resume_from;
  const models::ModelConfig& config = inputs_.config;
  const BatchGeometry geometry{options_.batch_size, options_.sequence_length,
                               context_.coordinates().data, context_.degrees().data};
  const auto batches = inputs_.train->TrainingBatches(geometry, inputs_.accumulation_steps,
                                                      options_.shuffle, options_.seed);
  loader_ = std::make_unique<DataLoader>(batches);
  if (inputs_.validation) validation_ = inputs_.validation->Coverage(geometry);
  if (options_.sample_every > 0) PrepareSamples(config.transformer);

  const nn::TensorOptions placement{device_, ParseParamDataType(options_)};
  const std::filesystem::path weights = WeightsPath(options_, inputs_.weights_from);
  model_ = weights.empty() ? models::CreateModel(config, options_.seed, placement)
                           : models::LoadModel(weights, placement);
  if (options_.dropout >= 0.0) {
    model_.module->SetDropout(options_.dropout);
    model_.config.transformer = model_.module->config();
  }
  lora_ = MakeLora(options_, model_);
  lora_base_ = BaseOfLora(options_, weights);
  model_.module->set_activation_checkpointing(MakeCheckpointing(options_));
  if (parallel::Communicator* communicator = context_.data_parallel()) {
    data_parallel_ = std::make_unique<parallel::DataParallel>(
        *communicator, model_.module->NamedParameters(), options_.ddp_bucket_mb);
    data_parallel_->Broadcast(model_.module->StateDict());
  }
  // After the broadcast: it may copy the parameters.
  optimizer_ = MakeOptimizer(options_, model_);
  runner_ = std::make_unique<StepRunner>(
      model_, *optimizer_,
      StepOptions{autocast_, options_.grad_clip, ParseGraphMode(options_.graph),
                  batches->targets_vary(), data_parallel_.get()},
      [this](const std::string& text) { progress_.Line(text); });
  if (!resume_from.empty()) Resume(resume_from);
  if (options_.num_iteration > 0 && first_step_ >= options_.num_iteration) {
    throw Error(fmt::format("num_iteration: expected more than the {} steps already made, got {}",
                            first_step_, options_.num_iteration));
  }
  if (!options_.profile.empty() && context_.is_first()) {
    profiler_ = std::make_unique<StepProfiler>(
        options_.profile,
        ParseProfileSteps(options_.profile_steps, first_step_, options_.num_iteration), device_);
  }
  if (context_.is_first()) {
    for (const std::string& folder : {options_.save, options_.lora_save_path})
      if (!folder.empty()) checkpoint::CheckWritable(folder);
    if (!options_.metrics_file.empty()) {
      sinks_.push_back(OpenJsonLines(options_.metrics_file, first_step_));
    }
    if (!options_.tensorboard_dir.empty())
      sinks_.push_back(OpenTensorBoard(options_.tensorboard_dir));
  }

  progress_.Line(fmt::format(
      "{} | {} parameters{} | {} on {} | {} | {} tokens a "
      "step ({}{} x {} x {}) | {}",
      model_.config.family, model_.config.transformer.NumParameters(),
      lora_ ? fmt::format(", {} trained in adapters", lora_->num_parameters()) : "", options_.dtype,
      context_.world_size() > 1
          ? fmt::format("{} ranks from {}", context_.world_size(), device_.ToString())
          : device_.ToString(),
      inputs_.train->Describe("training"), TokensPerStep(),
      context_.world_size() > 1 ? fmt::format("{} x ", context_.world_size()) : "",
      inputs_.accumulation_steps, options_.batch_size, options_.sequence_length,
      runner_->captures() ? "steps captured into a graph" : "steps not captured"));
  for (const std::optional<InputData>& data : {inputs_.train, inputs_.validation}) {
    const std::string warning = data ? data->Warning() : "";
    if (!warning.empty()) progress_.Line(warning);
  }
}

std::int64_t Trainer::TokensPerStep() const {
  return context_.world_size() * inputs_.accumulation_steps * options_.batch_size *
         options_.sequence_length;
}

Generator::State Trainer::RandomOfRank(Generator::State first) const {
  // Far apart, so that another seed of the run is not another rank.
  constexpr std::uint64_t kStride = 0x9E3779B97F4A7C15;
  first.seed += kStride * static_cast<std::uint64_t>(context_.rank());
  return first;
}

void Trainer::PrepareSamples(const nn::TransformerConfig& config) {
  if (!inputs_.tokenizer) {
    throw Error(
        "freq_generate_txt: expected a tokenizer (--tokenizer, or beside the data), found "
        "none");
  }
  sample_prompt_ = EncodePrompt(*inputs_.tokenizer, options_.prompt, config);
  if (!sample_prompt_.empty()) return;
  const std::int64_t start = inputs_.tokenizer->document_delimiter().value_or(0);
  sample_prompt_.push_back(start < config.vocab_size ? start : 0);
}

void Trainer::Resume(const std::filesystem::path& folder) {
  const checkpoint::TrainingState state = checkpoint::LoadTrainingState(folder);
  if (lora_ && models::FindPreset(lora_base_) != nullptr && state.random.seed != options_.seed) {
    throw Error(
        fmt::format("seed: expected {}, from which the weights of {} below the adapters "
                    "were made, got {}",
                    state.random.seed, lora_base_, options_.seed));
  }
  if (options_.load_optimizer_state) {
    if (state.optimizer.empty()) {
      throw Error(fmt::format(
          "{}: holds no optimizer state; pass --load_optimizer_state=false to start without",
          folder.string()));
    }
    if (state.optimizer != optimizer_->name()) {
      throw Error(fmt::format("{}: holds the state of {}, expected {} (--optimizer)",
                              folder.string(), state.optimizer, optimizer_->name()));
    }
    RestoreFrom(checkpoint::OptimizerStatePath(folder),
                [&] { optimizer_->LoadStateDict(state.optimizer_state, state.optimizer_step); });
  }
  LoadFp8Scales(state, folder);
  RestoreFrom(checkpoint::TrainingStatePath(folder), [&] { loader_->LoadState(state.data_state); });
  DefaultGenerator().set_state(RandomOfRank(state.random));
  first_step_ = state.step;
  progress_.Line(fmt::format("resumed from {} after step {}", folder.string(), state.step));
}

/// Without them the first step measures what it quantises. Other runs have no use for them.
void Trainer::LoadFp8Scales(const checkpoint::TrainingState& state,
                            const std::filesystem::path& folder) {
  if (GetMatmulPrecision() != MatmulPrecision::kFp8) return;
  if (state.fp8_state.empty()) {
    progress_.Line(fmt::format("{}: holds no scales of FP8: the first step measures its tensors",
                               folder.string()));
    return;
  }
  RestoreFrom(checkpoint::Fp8StatePath(folder),
              [&] { model_.module->LoadFp8State(state.fp8_state); });
}

std::vector<TokenBatch> Trainer::NextBatches() {
  if (only_batches_) return *only_batches_;
  std::vector<TokenBatch> batches;
  for (std::int64_t i = 0; i < inputs_.accumulation_steps; ++i)
    batches.push_back(loader_->Next());
  if (options_.overfit_single_batch) only_batches_ = batches;
  return batches;
}

void Trainer::ReportNonFinite(std::int64_t step, double loss,
                              const std::vector<TokenBatch>& batches) {
  std::string place;
  for (const TokenBatch& batch : batches) {
    const DeviceBatch tokens = ToDevice(batch, device_);
    const Autocast autocast(autocast_);
    place = FindNonFinite(model_, tokens.inputs, tokens.targets, tokens.context());
    if (!place.empty()) break;
  }
  if (context_.world_size() > 1) {
    // The first rank that found it speaks; if none did, rank 0.
    const double vote = place.empty() ? context_.is_first() ? 0.5 : 0.0
                                      : 1.0 + context_.world_size() - context_.rank();
    const Tensor votes = Full({1}, vote, DataType::kFloat64, device_);
    context_.world()->AllReduce(votes, parallel::ReduceOp::kMax);
    // The others are stopped here.
    if (votes.Item() != vote) context_.world()->Barrier();
    if (!place.empty()) place += fmt::format(" on rank {}", context_.rank());
  }
  progress_.Finish();
  throw Error(
      fmt::format("step {}: expected finite numbers, but {}; {}{}", step,
                  std::isfinite(loss) ? "the gradient is not" : fmt::format("the loss is {}", loss),
                  place.empty() ? "all are finite when the step is run again"
                                : fmt::format("the first that is not finite is in {}", place),
                  saved_to_.empty() ? "" : "; last checkpoint: " + saved_to_));
}

StepResult Trainer::TrainStep(std::int64_t step, double learning_rate) {
  const std::vector<TokenBatch> batches = NextBatches();
  const StepResult result = runner_->Run(batches, learning_rate);
  if (!result.IsFinite()) ReportNonFinite(step, result.loss, batches);
  return result;
}

void Trainer::Validate(std::int64_t step) {
  if (!validation_) return;
  const EvaluationResult result =
      Evaluate(model_, *validation_, autocast_, options_.val_max_steps, context_.data_parallel());
  progress_.Line(fmt::format("step {:4} | val loss {:.6f} | perplexity {:.3f} | {} tokens", step,
                             result.loss, std::exp(result.loss), result.num_targets));
  WriteMetrics(step, {{"val_loss", result.loss}});
}

void Trainer::Sample(std::int64_t step) {
  Generator generator(options_.seed + static_cast<std::uint64_t>(step));
  StreamingDecoder decoder(inputs_.tokenizer, /*skip_special_tokens=*/true,
                           /*is_continuation=*/!options_.prompt.empty());
  std::string text = options_.prompt;
  const Autocast autocast(autocast_);
  model_.module->Train(false);
  Generate(model_, sample_prompt_, -1,
           options_.text_length - static_cast<std::int64_t>(sample_prompt_.size()), {},
           SamplingOptions{}, generator, [&](std::int64_t token) {
             text += decoder.Push(static_cast<std::int32_t>(token));
             return true;
           });
  model_.module->Train(true);
  progress_.Line(fmt::format("--- sample at step {} ---\n{}{}\n---", step, text, decoder.Finish()));
}

void Trainer::Save(std::int64_t step) {
  if (options_.save.empty() || !context_.is_first()) return;
  const checkpoint::CheckpointManager manager(options_.save, options_.max_checkpoint_keep);
  const std::filesystem::path folder = manager.Save(step, [&](const std::filesystem::path& target) {
    if (lora_) {
      lora_->Save(target, lora_base_);
    } else {
      models::SaveModel(model_, target);
    }
    if (inputs_.tokenizer) inputs_.tokenizer->Save(target.string());
    checkpoint::TrainingState state;
    state.step = step;
    if (options_.save_optimizer_state) {
      state.optimizer = optimizer_->name();
      state.optimizer_step = optimizer_->step();
      state.optimizer_state = optimizer_->StateDict();
    }
    state.fp8_state = model_.module->Fp8State();
    state.random = DefaultGenerator().state();
    state.data_state = loader_->State();
    checkpoint::SaveTrainingState(state, target);
  });
  saved_to_ = folder.string();
  progress_.Line(fmt::format("saved {}", saved_to_));
}

void Trainer::WriteProfile() {
  const std::string table = profiler_ ? profiler_->Write() : "";
  if (table.empty()) return;
  progress_.Line(
      fmt::format("{}\nprofile.txt and trace.json are in {}", table, profiler_->folder().string()));
}

void Trainer::WriteMetrics(std::int64_t step, const Metrics& metrics) {
  for (const auto& sink : sinks_)
    sink->Write(step, metrics);
}

std::string Trainer::ResumeHint() const {
  if (options_.save.empty()) return "nothing was saved: no --save was given";
  if (saved_to_.empty()) return "nothing was saved: no step was made";
  return fmt::format("go on with the same command and --load {}", options_.save);
}

bool Trainer::IsDone(std::int64_t step) const {
  return pace_.IsOver(step) || StopSignals::Received() != 0;
}

StepReport Trainer::MakeReport(std::int64_t step, const StepResult& result, double learning_rate,
                               double seconds) {
  StepReport report;
  report.step = step;
  report.loss = result.loss;
  report.grad_norm = result.grad_norm;
  report.learning_rate = learning_rate;
  if (result.routers) {
    report.auxiliary_loss = result.routers->load_balancing_loss;
    report.expert_imbalance = result.routers->LargestImbalance();
    last_routers_ = result.routers;
  }
  report.milliseconds = 1e3 * seconds;
  report.tokens = TokensPerStep();
  report.data_parallel = context_.degrees().data;
  pace_.AddStep(seconds);
  report.total = pace_.TotalSteps(step);
  report.seconds_left = pace_.SecondsLeft(step);
  if (options_.peak_tflops > 0.0) {
    const nn::TransformerConfig& config = model_.config.transformer;
    double flops = config.TrainingFlopsPerToken(options_.sequence_length);
    if (lora_) {
      // The gradients of frozen weights, a third of their products, are not computed.
      flops += 6.0 * static_cast<double>(lora_->num_parameters()) -
               config.TrainingFlopsPerToken(0) / 3.0;
    }
    report.flops_utilisation = flops * report.tokens_per_second() / (options_.peak_tflops * 1e12);
  }
  const MemoryStats memory = allocator::Stats(device_);
  report.peak_used = memory.peak_allocated + (runner_->replayed() ? runner_->graph_bytes() : 0);
  report.peak_reserved = memory.peak_reserved;
  return report;
}

Trainer::Plan Trainer::MakePlan(std::int64_t step) const {
  double values[] = {IsDone(step) ? 0.0 : 1.0, pace_.LearningRate(step)};
  // Clocks and signals are not the same for all.
  context_.ShareFromFirst(values);
  return {values[0] != 0.0, values[1]};
}

int Trainer::Run() {
  std::optional<StopSignals> signals;
  if (context_.is_first()) signals.emplace();
  pace_.Start();
  if (first_step_ == 0 && options_.val_loss_every > 0) Validate(0);
  bool saved = false;
  bool validated = false;
  std::int64_t step = first_step_;
  for (Plan plan; (plan = MakePlan(step)).goes_on;) {
    allocator::ResetPeakStats(device_);
    const Clock::time_point step_start = Clock::now();
    const double learning_rate = plan.learning_rate;
    if (profiler_) profiler_->BeforeStep(step + 1);
    const StepResult result = TrainStep(++step, learning_rate);
    if (profiler_) profiler_->AfterStep(step);
    const StepReport report = MakeReport(step, result, learning_rate, SecondsSince(step_start));
    if (result.skipped) {
      progress_.Line(fmt::format("step {:4} | skipped: no target counts", step));
    }
    const auto due = [&](std::int64_t interval) { return interval > 0 && step % interval == 0; };
    progress_.Step(report,
                   options_.log_interval > 0 && (IsDone(step) || due(options_.log_interval)));
    Metrics metrics = {{"loss", result.loss},
                       {"lr", learning_rate},
                       {"grad_norm", result.grad_norm},
                       {"tokens_per_second", report.tokens_per_second()},
                       {"milliseconds", report.milliseconds},
                       {"tokens", static_cast<double>(step) * static_cast<double>(report.tokens)},
                       {"peak_used_bytes", static_cast<double>(report.peak_used)},
                       {"peak_reserved_bytes", static_cast<double>(report.peak_reserved)}};
    if (result.routers) AppendMetrics(*result.routers, metrics);
    WriteMetrics(step, metrics);
    if (profiler_ && profiler_->IsDone()) WriteProfile();
    if ((validated = due(options_.val_loss_every))) Validate(step);
    if (due(options_.sample_every) && context_.is_first()) Sample(step);
    if ((saved = due(options_.save_interval))) Save(step);
  }
  WriteProfile();
  // Signals do not come to all ranks at one time.
  double stopped[] = {static_cast<double>(StopSignals::Received())};
  context_.ShareFromFirst(stopped);
  if (!validated && stopped[0] == 0.0) Validate(step);
  if (!saved && step > first_step_) Save(step);
  if (!options_.lora_save_path.empty() && context_.is_first())
    lora_->Save(options_.lora_save_path, lora_base_);
  progress_.Finish();
  if (last_routers_ && options_.log_interval > 0) progress_.Line(FormatExpertLoad(*last_routers_));
  if (const int signal = StopSignals::Received(); signal != 0) {
    progress_.Line(fmt::format("stopped by {} after step {}; {}",
                               signal == SIGINT ? "SIGINT" : "SIGTERM", step, ResumeHint()));
    return 128 + signal;
  }
  return 0;
}

}  // namespace

int Train(const TrainOptions& options, std::FILE* out) {
  const Device device = ResolveDevice(options.device);
  const std::vector<Device> devices = DevicesOfRanks(device, options.nthread_per_process);
  const RunInputs inputs(options);
  // The calling thread is rank 0, with a part of the threads.
  struct ThreadsOfCaller {
    const bool shared;
    const int count = GetNumThreads();
    ~ThreadsOfCaller() {
      if (shared) SetNumThreads(count);
    }
  };
  const ThreadsOfCaller threads{devices.size() > 1};
  int status = 0;
  parallel::RunThreadRanks(devices, [&](parallel::ParallelContext& context) {
    Trainer trainer(inputs.options, inputs, context, context.is_first() ? out : nullptr);
    const int status_of_rank = trainer.Run();
    if (context.is_first()) status = status_of_rank;
  });
  return status;
}

}  // namespace infini_train::trainer
