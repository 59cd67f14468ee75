#pragma once

#include <cstdint>

#include "backends/simt/dialect.h"
#include "infini_train/core/generator.h"
#include "infini_train/core/philox.h"

namespace infini_train::simt {

/// The offset that a random op draws at: its state's, counted from the base if it has one.
SIMT_DEVICE inline std::uint64_t PhiloxOffset(const Generator::State& state) {
  return state.base == nullptr ? state.offset : state.offset + Load(state.base);
}

}  // namespace infini_train::simt
