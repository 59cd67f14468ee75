#pragma once

#include <cstdint>

#include "infini_train/core/api.h"

namespace infini_train {

/// A position in the counter-based random sequence (philox.h): a seed and an offset. Each random op
/// takes one offset, whatever its size, so the same calls give the same numbers on every device.
class INFINI_TRAIN_API Generator {
 public:
  struct State {
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;
    /// Optional: a number that is added to the offset when the op runs, in memory of the op's
    /// device. A captured step (core/device/graph.h) draws other numbers at each replay so.
    const std::uint64_t* base = nullptr;
    bool operator==(const State&) const = default;
  };

  explicit Generator(std::uint64_t seed = 0) : state_{.seed = seed} {}

  /// The state for one random op; moves on to the next offset.
  State Next() {
    const State state = state_;
    ++state_.offset;
    return state;
  }

  State state() const { return state_; }
  void set_state(State state) { state_ = state; }

 private:
  State state_;
};

/// The calling thread's generator, used by random ops that are given none. Starts with seed 0.
INFINI_TRAIN_API Generator& DefaultGenerator();

/// Restarts the calling thread's generator.
INFINI_TRAIN_API void ManualSeed(std::uint64_t seed);

}  // namespace infini_train
