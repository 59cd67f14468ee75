#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "infini_train/core/api.h"
#include "infini_train/core/generator.h"
#include "infini_train/core/tensor.h"

/// Checkpoints of a training run: `ROOT/checkpoint_step_%06d/` holds the model as a Hugging Face
/// folder and, in `training/`, what resuming needs besides. `ROOT/latest` names the newest complete
/// one.
namespace infini_train::checkpoint {

/// Everything about a run that is not in the model files.
struct TrainingState {
  /// Optimizer steps made.
  std::int64_t step = 0;
  std::string optimizer;  ///< name
  /// Steps of the optimizer, which its state is about: fewer than the run's where it began anew
  /// when the run was resumed.
  std::int64_t optimizer_step = 0;
  NamedTensors optimizer_state;
  /// Transformer::Fp8State; empty where nothing was computed in FP8.
  NamedTensors fp8_state = {};
  Generator::State random;
  /// State of the data loader, as it writes it (JSON text).
  std::string data_state;
};

/// The files of a checkpoint's folder: of TrainingState::optimizer_state, of fp8_state, and of all
/// that is no tensor.
INFINI_TRAIN_API std::filesystem::path OptimizerStatePath(const std::filesystem::path& folder);
INFINI_TRAIN_API std::filesystem::path Fp8StatePath(const std::filesystem::path& folder);
INFINI_TRAIN_API std::filesystem::path TrainingStatePath(const std::filesystem::path& folder);

/// Writes `folder/training/`: optimizer.safetensors and fp8.safetensors, where the state has them,
/// and state.json, each atomically.
INFINI_TRAIN_API void SaveTrainingState(const TrainingState& state,
                                        const std::filesystem::path& folder);

/// Reads it back; tensors are on the CPU in the types that they were saved in. Where an older file
/// does not give the optimizer's step it is the run's. Throws Error naming file and fault.
INFINI_TRAIN_API TrainingState LoadTrainingState(const std::filesystem::path& folder);

/// Creates the folder if need be and tries to write a file in it. Throws Error when that fails, so
/// that a run does not find out at its end.
INFINI_TRAIN_API void CheckWritable(const std::filesystem::path& folder);

/// The checkpoints of one run.
class INFINI_TRAIN_API CheckpointManager {
 public:
  /// `max_keep` 0 keeps all.
  CheckpointManager(std::filesystem::path root, std::int64_t max_keep);

  /// Calls `write(folder)` on a temporary folder, renames it to checkpoint_step_<step>, points
  /// `latest` at it, and then removes the oldest others beyond max_keep. A kill at any moment
  /// leaves `latest` pointing at a complete checkpoint. Replaces a checkpoint of the same step.
  /// Throws Error when something cannot be written; older checkpoints are then untouched. Returns
  /// the folder. One process at a time may save below `root`.
  std::filesystem::path Save(std::int64_t step,
                             const std::function<void(const std::filesystem::path&)>& write) const;

 private:
  std::filesystem::path root_;
  std::int64_t max_keep_;
};

/// `path` itself where it is a checkpoint, else the one that `path/latest` names, else the complete
/// checkpoint of the highest step below `path`. Throws Error when there is none.
INFINI_TRAIN_API std::filesystem::path FindCheckpoint(const std::filesystem::path& path);

}  // namespace infini_train::checkpoint
