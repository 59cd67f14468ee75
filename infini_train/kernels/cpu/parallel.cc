#include "infini_train/kernels/cpu/parallel.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <mutex>

namespace infini_train::cpu {
namespace {

/// Keeps the exception of the lowest-numbered piece of work.
class FirstException {
 public:
  template <typename Body>
  void Guard(std::int64_t position, const Body& body) noexcept {
    try {
      body();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!exception_ || position < position_) {
        exception_ = std::current_exception();
        position_ = position;
      }
    }
  }

  void Rethrow() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr exception_;
  std::int64_t position_ = 0;
};

}  // namespace

int NumThreads() noexcept {
  return omp_in_parallel() ? 1 : omp_get_max_threads();
}

namespace detail {

void RunChunks(std::int64_t begin, std::int64_t end, std::int64_t grain, RangeFunction function,
               const void* body) {
  const std::int64_t count = end - begin;
  const std::int64_t useful =
      (count + std::max<std::int64_t>(grain, 1) - 1) / std::max<std::int64_t>(grain, 1);
  const int threads = static_cast<int>(std::min<std::int64_t>(NumThreads(), useful));
  FirstException failure;
#pragma omp parallel num_threads(threads)
  {
    // The runtime may give fewer threads than asked for.
    const std::int64_t team = omp_get_num_threads();
    const std::int64_t rank = omp_get_thread_num();
    const std::int64_t chunk = count / team;
    const std::int64_t longer = count % team;
    const std::int64_t first = begin + rank * chunk + std::min(rank, longer);
    const std::int64_t last = first + chunk + (rank < longer ? 1 : 0);
    if (first < last) failure.Guard(first, [&] { function(body, first, last); });
  }
  failure.Rethrow();
}

void RunTasks(std::int64_t count, RangeFunction function, const void* body) {
  const int threads = static_cast<int>(std::min<std::int64_t>(NumThreads(), count));
  FirstException failure;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (std::int64_t task = 0; task < count; ++task)
    failure.Guard(task, [&] { function(body, task, task + 1); });
  failure.Rethrow();
}

}  // namespace detail
}  // namespace infini_train::cpu
