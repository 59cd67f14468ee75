#pragma once

#include <cstdint>

namespace infini_train::cpu {

/// Elements of cheap work (a load, a few operations, a store) below which a second thread costs
/// more than it saves; the usual `grain` of element-wise loops.
inline constexpr std::int64_t kElementGrain = 16 * 1024;

/// `kElementGrain` in units of rows of `row_size` elements; at least 1.
constexpr std::int64_t RowGrain(std::int64_t row_size) {
  return row_size >= kElementGrain || row_size <= 0 ? 1 : kElementGrain / row_size;
}

/// Threads that a parallel loop started here would use; 1 inside a parallel loop.
int NumThreads() noexcept;

namespace detail {

using RangeFunction = void (*)(const void* body, std::int64_t begin, std::int64_t end);

/// Splits [begin, end) evenly over the threads, each with at least `grain` (but for the last).
void RunChunks(std::int64_t begin, std::int64_t end, std::int64_t grain, RangeFunction function,
               const void* body);
/// Hands out the tasks [0, count) one by one to whichever thread is free.
void RunTasks(std::int64_t count, RangeFunction function, const void* body);

}  // namespace detail

/// Calls `body(chunk_begin, chunk_end)` for disjoint chunks that cover [begin, end), in parallel
/// when there are more than `grain` iterations and more than one thread; else once, inline. Calls
/// inside a parallel loop run inline. Chunks depend on the number of threads: a body whose result
/// for an iteration does not depend on its chunk gives the same bits for any number of threads. An
/// exception of a body is rethrown here when all have ended (that of the first chunk, if several).
template <typename Body>
void ParallelFor(std::int64_t begin, std::int64_t end, std::int64_t grain, const Body& body) {
  if (begin >= end) return;
  if (end - begin <= grain || NumThreads() == 1) {
    body(begin, end);
    return;
  }
  detail::RunChunks(
      begin, end, grain,
      [](const void* erased, std::int64_t chunk_begin, std::int64_t chunk_end) {
        (*static_cast<const Body*>(erased))(chunk_begin, chunk_end);
      },
      &body);
}

/// Calls `body(task)` for each task in [0, count), in parallel where possible, for tasks of unequal
/// length. Each task is worth a thread's while (tens of microseconds). Exceptions as in
/// ParallelFor: that of the lowest task that was run and failed.
template <typename Body>
void ParallelTasks(std::int64_t count, const Body& body) {
  if (count <= 1 || NumThreads() == 1) {
    for (std::int64_t task = 0; task < count; ++task)
      body(task);
    return;
  }
  detail::RunTasks(
      count,
      [](const void* erased, std::int64_t task, std::int64_t) {
        (*static_cast<const Body*>(erased))(task);
      },
      &body);
}

}  // namespace infini_train::cpu
