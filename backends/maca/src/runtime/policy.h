#pragma once

#include <cstddef>
#include <vector>

#include "infini_train/core/device/device_guard.h"

namespace infini_train::maca {

/// How the provider works around what was seen on the hardware: README.md says why for each. Memory
/// is freed the way it was allocated, so nothing changes while the process lives.
struct Policy {
  /// Synchronous allocation, one copy call at a time, and blocking launches by default.
  bool multithread_workarounds = true;
  /// The pool for stream-ordered memory keeps all pages.
  bool retain_async_pool = false;
  /// Matrix products of float32 and lower types are summed in float64.
  bool gemm_fp64_accumulation = false;
  /// The most bytes of one all-reduce of the library; 0 for any.
  std::size_t allreduce_segment_bytes = 0;
  /// The above and the SDK's environment, for print.
  std::vector<RuntimeSetting> settings;
};

/// Reads flags and environment on the first call, which comes before the runtime starts, and gives
/// the SDK's environment its defaults. Throws Error for a value that is not understood.
const Policy& GetPolicy();

}  // namespace infini_train::maca
