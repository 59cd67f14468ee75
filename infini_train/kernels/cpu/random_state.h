#pragma once

#include "infini_train/core/generator.h"

namespace infini_train::cpu {

/// The state with the offset that a random op draws at: counted from the base if it has one.
inline Generator::State Resolve(Generator::State state) {
  if (state.base != nullptr) state.offset += *state.base;
  state.base = nullptr;
  return state;
}

}  // namespace infini_train::cpu
