#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/core/api.h"

namespace infini_train::trainer {

/// Named numbers of one step ("loss", 4.37).
using Metrics = std::vector<std::pair<std::string, double>>;

/// Where the numbers of a run go besides the terminal.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  /// Appends and flushes.
  virtual void Write(std::int64_t step, const Metrics& metrics) = 0;
};

/// One JSON object a line: {"step": 1, "loss": 4.37, …}; numbers that JSON cannot hold (NaN,
/// infinities) are strings. A resumed run appends after dropping lines of steps that it repeats.
/// Throws Error when the file cannot be written.
INFINI_TRAIN_API std::unique_ptr<MetricsSink> OpenJsonLines(const std::string& path,
                                                            std::int64_t resume_after_step);

/// A TensorBoard event file in `folder`, one scalar per metric. Throws Error when it cannot be
/// written.
INFINI_TRAIN_API std::unique_ptr<MetricsSink> OpenTensorBoard(const std::string& folder);

}  // namespace infini_train::trainer
