#include "infini_train/core/threads.h"

#include <fmt/format.h>
#include <omp.h>

#include "infini_train/core/error.h"

namespace infini_train {

void SetNumThreads(int num_threads) {
  constexpr int kMostThreads = 4096;
  if (num_threads < 1 || num_threads > kMostThreads) {
    throw Error(fmt::format("threads: expected 1 to {}, got {}", kMostThreads, num_threads));
  }
  omp_set_num_threads(num_threads);
}

int GetNumThreads() {
  return omp_get_max_threads();
}

}  // namespace infini_train
