#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "infini_train/core/api.h"
#include "infini_train/ops/op_recorder.h"

namespace infini_train::trainer {

/// The steps from the first to the last, counted from 1.
struct StepRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// "11:13", or "11" for one step. Empty: three steps after a warm-up of up to ten, of a run that
/// has `steps_done` steps behind it and ends with step `last_step` (0: nobody knows). Throws Error
/// on anything else, and where the run has no such steps.
INFINI_TRAIN_API StepRange ParseProfileSteps(const std::string& text, std::int64_t steps_done,
                                             std::int64_t last_step);

/// Records the ops of some steps of a run and writes `profile.txt` (FormatProfile) and `trace.json`
/// (FormatTrace) into a folder.
class INFINI_TRAIN_API StepProfiler {
 public:
  /// Makes the folder. Throws Error where it cannot be written.
  StepProfiler(std::filesystem::path folder, StepRange steps, Device device);

  /// Around each step of the run.
  void BeforeStep(std::int64_t step);
  void AfterStep(std::int64_t step);
  /// Whether the last of the steps was recorded.
  bool IsDone() const { return recorded_ == steps_.last; }
  /// Writes the files where steps were recorded, and returns the table by ops (FormatOps); empty
  /// where none were, or all were written before. Throws Error when the files cannot be written.
  std::string Write();

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  StepRange steps_;
  OpRecorder recorder_;
  std::int64_t recorded_ = 0;  // The last recorded step.
  bool unwritten_ = false;
};

}  // namespace infini_train::trainer
