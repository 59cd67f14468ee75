#pragma once

namespace infini_train::simt::emulator {

/// How kernels are run.
struct Options {
  int warp_size = 32;        ///< INFINITRAIN_SIM_WARP_SIZE: lanes that execute together, 32 or 64
  int threads = 1;           ///< INFINITRAIN_SIM_THREADS: threads that share the blocks of a launch
  bool check_races = false;  ///< `race` in INFINITRAIN_SIM_CHECK, a list with commas
  bool check_memory = false;  ///< `memory` in it: for the provider, which owns device memory
};

/// What the environment says, read once. Throws Error for a value that is not understood.
const Options& GetOptions();

/// Replaces the options of this process. Not while kernels run.
void SetOptions(const Options& options);

}  // namespace infini_train::simt::emulator
