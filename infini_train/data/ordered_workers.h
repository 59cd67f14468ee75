#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "infini_train/core/threads.h"

namespace infini_train {

/// Runs tasks on several threads and hands the results out in order. Threads stay at most a few
/// tasks ahead of what was handed out, so that memory is bounded.
template <typename Task, typename Result>
class OrderedWorkers {
 public:
  /// `next_task` gives the tasks one by one, nothing at the end, and is called by one thread at a
  /// time; `run` is called by several at once. 0 threads: as many as kernels have
  /// (core/threads.h). There are no more than 1024, and no more than the system gives; throws where
  /// it gives none.
  OrderedWorkers(std::function<std::optional<Task>()> next_task,
                 std::function<Result(const Task&)> run, int num_threads)
      : next_task_(std::move(next_task)), run_(std::move(run)) {
    if (num_threads == 0) num_threads = GetNumThreads();
    num_threads = std::min(num_threads, 1024);
    most_ahead_ = 4 * static_cast<size_t>(num_threads);
    threads_.reserve(static_cast<size_t>(num_threads));
    for (int i = 0; i < num_threads; ++i) {
      try {
        threads_.emplace_back([this] { Work(); });
      } catch (const std::system_error&) {
        if (threads_.empty()) throw;
        break;  // those that run do all of it
      }
    }
  }

  ~OrderedWorkers() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_)
      thread.join();
  }

  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;

  /// The next result, or nothing at the end. Throws what its task threw.
  std::optional<Result> Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] {
      return ready_.contains(handed_out_) || (no_more_tasks_ && handed_out_ == taken_);
    });
    const auto found = ready_.find(handed_out_);
    if (found == ready_.end()) return std::nullopt;
    Outcome outcome = std::move(found->second);
    if (outcome.failure != nullptr) std::rethrow_exception(outcome.failure);
    ready_.erase(found);
    ++handed_out_;
    changed_.notify_all();
    return std::move(outcome.result);
  }

 private:
  struct Outcome {
    std::optional<Result> result;
    std::exception_ptr failure;
  };

  void Work() {
    for (;;) {
      std::optional<Task> task;
      size_t index = 0;
      Outcome outcome;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(
            lock, [this] { return stop_ || no_more_tasks_ || taken_ < handed_out_ + most_ahead_; });
        if (stop_ || no_more_tasks_) return;
        try {
          task = next_task_();
        } catch (...) {
          outcome.failure = std::current_exception();
          no_more_tasks_ = true;
        }
        if (!task && outcome.failure == nullptr) {
          no_more_tasks_ = true;
          changed_.notify_all();
          return;
        }
        index = taken_++;
      }
      if (task) {
        try {
          outcome.result = run_(*task);
        } catch (...) {
          outcome.failure = std::current_exception();
        }
      }
      const std::lock_guard lock(mutex_);
      if (outcome.failure != nullptr) no_more_tasks_ = true;
      ready_.emplace(index, std::move(outcome));
      changed_.notify_all();
    }
  }

  const std::function<std::optional<Task>()> next_task_;
  const std::function<Result(const Task&)> run_;
  size_t most_ahead_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<size_t, Outcome> ready_;  // by the task's place
  size_t taken_ = 0;
  size_t handed_out_ = 0;
  bool no_more_tasks_ = false;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace infini_train
