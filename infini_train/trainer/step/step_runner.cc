#include "infini_train/trainer/step/step_runner.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/graph.h"
#include "infini_train/core/error.h"
#include "infini_train/core/generator.h"
#include "infini_train/ops/op_recorder.h"
#include "infini_train/trainer/step/accumulate.h"
#include "infini_train/trainer/step/token_buffers.h"

namespace infini_train::trainer {
namespace {

/// Steps alike that run one op after another before the next is captured: libraries choose their
/// algorithms and allocate workspaces in the first, and the first step of SGD is unlike the others.
constexpr int kWarmUpSteps = 2;

}  // namespace

bool StepResult::IsFinite() const {
  return std::isfinite(loss) && std::isfinite(grad_norm);
}

GraphMode ParseGraphMode(const std::string& text) {
  if (text == "off") return GraphMode::kOff;
  if (text == "auto") return GraphMode::kAuto;
  if (text == "on") return GraphMode::kOn;
  throw Error(fmt::format("graph: expected auto, on or off, got {}", text));
}

/// What captured work depends on and may differ from step to step.
struct StepRunner::Likeness {
  std::vector<bool> has_targets;  ///< of each micro-batch
  std::int64_t num_targets = 0;   ///< of all together: the divisor of the loss; 0: it varies
  std::size_t num_samples = 0;    ///< of a micro-batch, if packed
  std::int64_t batch_size = 0;
  std::int64_t sequence_length = 0;
  bool training = false;   ///< the model's mode
  std::uint64_t seed = 0;  ///< of the random numbers

  bool operator==(const Likeness&) const = default;
};

/// What work of the device reads and writes.
struct StepRunner::State {
  State(Device device, const nn::TransformerConfig& config)
      : device(device),
        impl(GetDeviceGuardImpl(device.type())),
        num_experts(config.num_local_experts),
        num_router_sums(num_experts > 0 ? 1 + config.num_hidden_layers * (num_experts + 2) : 0),
        result(Tensor::Empty({2 + num_router_sums}, DataType::kFloat32, device)),
        host_result(device, result.nbytes()) {
    const DeviceGuard guard(device);
    done = impl.CreateEvent();
  }
  ~State() { impl.DestroyEvent(done); }

  const Device device;
  DeviceGuardImpl& impl;
  const std::int64_t num_experts;
  const std::int64_t num_router_sums;
  Tensor result;  ///< loss, norm and router sums
  PinnedMemory host_result;
  EventHandle done = nullptr;
  std::optional<TokenBuffers> tokens;

  std::optional<Likeness> last;
  int alike = 0;  ///< steps like the last in a row that were no replays
  bool told_of_difference = false;
  std::optional<Likeness> captured;
  std::unique_ptr<DeviceGraph> graph;
};

StepRunner::StepRunner(models::Model model, optim::Optimizer& optimizer, const StepOptions& options,
                       std::function<void(const std::string&)> notice)
    : model_(std::move(model)),
      parameters_(model_.module->Parameters()),
      optimizer_(optimizer),
      options_(options),
      notice_(std::move(notice)),
      state_(std::make_unique<State>(model_.module->head_weight().device(),
                                     model_.config.transformer)) {
  const bool supported = DeviceGraph::IsSupported(state_->device);
  if (options_.graph == GraphMode::kOn && !supported) {
    throw Error(fmt::format("graph: {} cannot capture work into graphs; expected auto or off",
                            state_->device.ToString()));
  }
  captures_ = options_.graph != GraphMode::kOff && supported;
  if (!captures_ || options_.data_parallel == nullptr) return;
  const parallel::Ccl& ccl = options_.data_parallel->communicator().ccl();
  if (ccl.CanCapture()) return;
  const std::string why =
      fmt::format("collectives of {} cannot be captured into graphs", ccl.Name());
  if (options_.graph == GraphMode::kOn) throw Error(fmt::format("graph: {}", why));
  captures_ = false;
  notice_(fmt::format("steps are not captured into a graph: {}", why));
}

StepRunner::~StepRunner() = default;

StepResult StepRunner::Run(std::span<const TokenBatch> batches, double learning_rate) {
  Likeness likeness;
  likeness.training = model_.module->training();
  likeness.seed = DefaultGenerator().state().seed;
  std::int64_t num_targets = 0;
  for (const TokenBatch& batch : batches) {
    const std::int64_t targets = batch.num_targets + batch.num_targets_of_others;
    likeness.has_targets.push_back(options_.targets_vary || targets > 0);
    num_targets += targets;
    likeness.num_samples = batch.sample_lengths.size();
    likeness.batch_size = batch.batch_size;
    likeness.sequence_length = batch.sequence_length;
  }
  if (!options_.targets_vary) likeness.num_targets = num_targets;
  replayed_ = false;
  if (num_targets == 0) {
    optimizer_.PrepareStep(learning_rate);
    return {.skipped = true};
  }
  Fill(batches);
  optimizer_.PrepareStep(learning_rate);
  replayed_ = FindGraph(likeness);
  if (replayed_) {
    state_->graph->Launch();
    CountParameterWrites();
  } else {
    Enqueue();
  }
  const StepResult result = ReadResult();
  // The device has been waited for: what a rank that failed left unreduced is not used.
  if (options_.data_parallel != nullptr) options_.data_parallel->communicator().CheckErrors();
  if (!result.IsFinite()) optimizer_.DiscardStep();
  return result;
}

void StepRunner::Fill(std::span<const TokenBatch> batches) {
  State& state = *state_;
  if (!state.tokens || !state.tokens->Fit(batches)) {
    // The graph reads the buffers that go away.
    state.graph.reset();
    state.captured.reset();
    state.tokens.emplace(state.device, batches);
  }
  state.tokens->Fill(batches);
}

void StepRunner::Enqueue() {
  const State& state = *state_;
  optimizer_.ZeroGrad();
  Tensor router_sums;
  const Tensor loss = AccumulateGradients(
      model_, state.tokens->batches(), options_.autocast, options_.data_parallel, &router_sums,
      options_.targets_vary ? state.tokens->inverse_targets() : Tensor());
  const auto [norm, factor] = optim::ComputeGradientNorm(parameters_, options_.grad_clip);
  const NoGrad no_grad;
  // A loss that is not finite keeps the step from changing anything, as such a norm does.
  optimizer_.ApplyStep(factor + loss * Scalar(0));
  CopyInPlace(Select(state.result, 0, 0), loss);
  CopyInPlace(Select(state.result, 0, 1), norm);
  if (router_sums.defined()) CopyInPlace(Slice(state.result, 0, 2), router_sums);
  optimizer_.ZeroGrad();
}

bool StepRunner::FindGraph(const Likeness& likeness) {
  State& state = *state_;
  if (!captures_ || IsRecordingOps()) return false;
  if (state.captured == likeness) {
    state.last = likeness;
    state.alike = 0;
    return true;
  }
  if (state.last && state.last != likeness) {
    state.alike = 0;
    if (!std::exchange(state.told_of_difference, true)) {
      notice_("steps that count another number of targets than those before run without a graph");
    }
  }
  state.last = likeness;
  if (++state.alike <= kWarmUpSteps) return false;
  try {
    Capture();
  } catch (const Error& error) {
    if (options_.graph == GraphMode::kOn) throw;
    captures_ = false;
    notice_(fmt::format("steps are not captured into a graph: {}", error.what()));
    return false;
  }
  state.captured = likeness;
  state.alike = 0;
  return true;
}

void StepRunner::CountParameterWrites() const {
  for (const Tensor& parameter : parameters_)
    parameter.BumpVersion();
}

void StepRunner::Capture() {
  State& state = *state_;
  state.captured.reset();
  state.graph.reset();
  graph_bytes_ = 0;
  // Gradients that the captured work drops would stay out of use.
  optimizer_.ZeroGrad();
  // What is derived from parameters and kept is derived in every replay.
  CountParameterWrites();
  allocator::ResetPeakStats(state.device);
  const std::size_t before = allocator::Stats(state.device).allocated;
  state.graph = std::make_unique<DeviceGraph>(state.device, [this] { Enqueue(); });
  graph_bytes_ = allocator::Stats(state.device).peak_allocated - before;
  // Capturing took from the allocator what replays will work in: it must not count twice.
  allocator::ResetPeakStats(state.device);
}

StepResult StepRunner::ReadResult() {
  const State& state = *state_;
  const DeviceGuard guard(state.device);
  const StreamHandle stream = CurrentStream(state.device);
  state.impl.CopyAsync(state.host_result.data<void>(), state.result.raw_data(),
                       state.host_result.bytes(), CopyKind::kDeviceToHost, stream);
  state.impl.RecordEvent(state.done, stream);
  state.impl.SynchronizeEvent(state.done);
  const auto* values = state.host_result.data<float>();
  StepResult result{.loss = values[0], .grad_norm = values[1]};
  if (state.num_router_sums > 0) {
    const auto count = static_cast<std::size_t>(state.num_router_sums);
    result.routers = MakeRouterReport(std::span(values + 2, count), state.num_experts);
  }
  return result;
}

}  // namespace infini_train::trainer
