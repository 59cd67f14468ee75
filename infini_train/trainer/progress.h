#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "infini_train/core/api.h"

namespace infini_train::trainer {

/// One optimizer step as reported.
struct StepReport {
  std::int64_t step = 0;      ///< counted from 1
  std::int64_t total = 0;     ///< steps of the whole run; an estimate where time is the limit
  double seconds_left = 0.0;  ///< of the run, by the pace so far
  double loss = 0.0;
  double grad_norm = 0.0;
  double learning_rate = 0.0;
  /// Of a mixture of experts; negative where there is none.
  double auxiliary_loss = -1.0;
  double expert_imbalance = -1.0;
  double milliseconds = 0.0;
  std::int64_t tokens = 0;          ///< of this step
  double flops_utilisation = -1.0;  ///< model FLOPS per second over the peak; negative if unknown
  std::size_t peak_used = 0;        ///< bytes in tensors
  std::size_t peak_reserved = 0;    ///< bytes held by the allocator
  int data_parallel = 1;            ///< ranks with the same part of the model

  double tokens_per_second() const {
    return milliseconds > 0 ? static_cast<double>(tokens) / milliseconds * 1e3 : 0.0;
  }
};

/// "step    1/10 | train loss 4.370000 | norm 1.2345 | lr 1.00e-04 | (12.34 ms | 20746 tok/s | peak
/// used:    12 MB | peak reserved:    16 MB, DP=1, TP=1, SP=1, PP=1)"; with experts "| aux loss
/// 2.0104 | expert load 1.23" stands before the parenthesis.
INFINI_TRAIN_API std::string FormatStep(const StepReport& report);

/// "1 file", "2 files".
INFINI_TRAIN_API std::string FormatCount(std::int64_t count, std::string_view noun);

/// "1:02:03" or "02:03".
INFINI_TRAIN_API std::string FormatDuration(double seconds);

/// Prints steps: on a terminal one line that is rewritten, with the time left, and shortened to the
/// terminal's width; else a line a step.
class INFINI_TRAIN_API ProgressPrinter {
 public:
  /// A null `out` prints nothing.
  explicit ProgressPrinter(std::FILE* out);

  /// `log` says whether this step gets a lasting line when not on a terminal.
  void Step(const StepReport& report, bool log);
  /// Rewrites the progress line with other text; prints nothing when not on a terminal.
  void Transient(const std::string& text);
  /// Prints a lasting line, below the progress line if there is one.
  void Line(const std::string& text);
  /// Leaves the last progress line standing.
  void Finish();

 private:
  std::FILE* out_;
  bool terminal_;
  bool line_open_ = false;
};

}  // namespace infini_train::trainer
