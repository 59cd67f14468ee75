#pragma once

#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/ops/op_recorder.h"

namespace infini_train::trainer {

/// Calls of one op, or of one op with tensors of the same shapes.
struct ProfileRow {
  std::string op;
  std::string tensors;  ///< empty where all of an op's calls are together
  std::int64_t calls = 0;
  /// Of all steps together, without what calls inside of these took, moved and computed.
  double microseconds = 0.0;
  double bytes = 0.0;
  double flops = 0.0;
};

/// The rows of the profiled device, longest first.
INFINI_TRAIN_API std::vector<ProfileRow> SummarizeOps(const OpProfile& profile, bool by_tensors);

/// Microseconds of all steps in which no op ran on the device: copies from the host, launches that
/// came late, and work between ops.
INFINI_TRAIN_API double IdleMicroseconds(const OpProfile& profile);

/// Two tables: by op, and by op and tensors.
INFINI_TRAIN_API std::string FormatProfile(const OpProfile& profile);

/// The first of them alone.
INFINI_TRAIN_API std::string FormatOps(const OpProfile& profile);

/// JSON in the Trace Event Format of chrome://tracing and Perfetto: the calls on the device, one
/// line a stream, and on the host, one line a thread.
INFINI_TRAIN_API std::string FormatTrace(const OpProfile& profile);

}  // namespace infini_train::trainer
