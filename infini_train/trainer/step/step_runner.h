#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/dtype.h"
#include "infini_train/data/batch_source.h"
#include "infini_train/models/model.h"
#include "infini_train/optim/optimizer.h"
#include "infini_train/parallel/data_parallel.h"
#include "infini_train/trainer/step/router_report.h"

namespace infini_train::trainer {

/// Whether steps are captured into a graph of the device and replayed.
enum class GraphMode : std::uint8_t {
  kOff,
  kAuto,  ///< where that is possible
  kOn,    ///< Error where it is not
};
/// "off", "auto" or "on". Throws Error naming the flag on anything else.
INFINI_TRAIN_API GraphMode ParseGraphMode(const std::string& text);

struct StepOptions {
  std::optional<DataType> autocast;
  double grad_clip = 0.0;  ///< largest norm of the gradient; 0 for no clipping
  GraphMode graph = GraphMode::kAuto;
  /// Whether steps differ in the number of targets that count: these are alike then all the same.
  /// Otherwise the number is part of what is captured, which costs a little less.
  bool targets_vary = false;
  /// Where other ranks train the same model on other data; outlives the runner.
  parallel::DataParallel* data_parallel = nullptr;
};

/// The numbers of a step.
struct INFINI_TRAIN_API StepResult {
  double loss = 0.0;
  double grad_norm = 0.0;
  bool skipped = false;  ///< no target counts
  /// Of a model with experts, unless the step was skipped.
  std::optional<RouterReport> routers = std::nullopt;

  bool IsFinite() const;
};

/// Runs optimizer steps: forward and backward of every micro-batch, clipping and the update. The
/// host waits once, for the loss, the norm and what routers did; all else is enqueued.
///
/// After two steps that are alike, in the number and the size of their micro-batches, those of
/// their packed samples' lengths and, unless they vary, of their targets, the next such step is
/// captured into a graph (core/device/graph.h) that it and the later ones replay, with the same
/// bits as without. A step that differs runs without, and so does one whose ops are recorded
/// (ops/op_recorder.h). What the model is set to (dropout, recomputation, hooks, which parameters
/// are trained) is captured too: set it before the first step.
///
/// With data parallelism all ranks run the same steps; loss, norm and what follows from them are
/// those of all micro-batches together, with the same bits on every rank. Steps are captured where
/// the collectives can be.
///
/// Between steps there are no gradients.
class INFINI_TRAIN_API StepRunner {
 public:
  /// `notice` gets a line where a graph was asked for and steps do without. `optimizer` outlives
  /// this. Throws Error for GraphMode::kOn on a device, or with collectives, that has no graphs.
  StepRunner(models::Model model, optim::Optimizer& optimizer, const StepOptions& options,
             std::function<void(const std::string&)> notice);
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  /// One step. A loss or a norm that is not finite is returned as it is: parameters and state of
  /// the optimizer are then untouched and the step is not counted. A step in which no target counts
  /// is counted, and does nothing else. Throws Error for GraphMode::kOn when the capture fails.
  StepResult Run(std::span<const TokenBatch> batches, double learning_rate);

  /// Whether steps are, or will be, captured.
  bool captures() const { return captures_; }
  /// Whether the last step was a replay.
  bool replayed() const { return replayed_; }
  /// Memory that a replay works in, which counts as no tensor's.
  std::size_t graph_bytes() const { return graph_bytes_; }

 private:
  struct Likeness;
  struct State;

  void Fill(std::span<const TokenBatch> batches);
  /// Enqueues a step's work, once the inputs and the optimizer are prepared.
  void Enqueue();
  /// Whether there is a graph for this step, which may be captured for it.
  bool FindGraph(const Likeness& likeness);
  void Capture();
  /// For who keeps what is derived from parameters: the writes of replays are not counted.
  void CountParameterWrites() const;
  StepResult ReadResult();

  models::Model model_;
  std::vector<Tensor> parameters_;
  optim::Optimizer& optimizer_;
  StepOptions options_;
  std::function<void(const std::string&)> notice_;
  bool captures_ = false;
  bool replayed_ = false;
  std::size_t graph_bytes_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace infini_train::trainer
