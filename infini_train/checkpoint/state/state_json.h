#pragma once

#include <string>
#include <string_view>

#include "infini_train/checkpoint/training_checkpoint.h"

namespace infini_train::checkpoint {

/// What state.json holds.
struct StateJson {
  TrainingState state;         ///< without its tensors
  bool has_fp8_state = false;  ///< in a file of its own
};

/// Of `state`, whose tensors are in other files.
std::string DumpStateJson(const TrainingState& state, bool has_fp8_state);

/// Reads it back. Throws Error that begins with `source` and names the fault.
StateJson ParseStateJson(std::string_view text, const std::string& source);

}  // namespace infini_train::checkpoint
