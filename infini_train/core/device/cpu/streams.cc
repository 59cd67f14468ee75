#include "infini_train/core/device/cpu/streams.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "infini_train/core/device/cpu_stream.h"
#include "infini_train/core/threads.h"

namespace infini_train {
namespace {

using Task = std::function<void()>;

/// Tasks in order, on a thread that starts with the first of them.
class CpuStream {
 public:
  ~CpuStream() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (worker_.joinable()) worker_.join();
  }

  void Push(Task task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    pending_.store(true, std::memory_order_relaxed);
    if (!worker_.joinable()) worker_ = std::thread([this] { Work(); });
    changed_.notify_all();
  }

  bool IsIdle() const { return !pending_.load(std::memory_order_acquire); }

  void Drain() {
    if (IsIdle()) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !pending_.load(std::memory_order_relaxed); });
  }

 private:
  void Work() {
    // Beside the threads of the kernels that the work overlaps with.
    SetNumThreads(1);
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      {
        const Task task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task();
      }
      lock.lock();
      if (!tasks_.empty()) continue;
      pending_.store(false, std::memory_order_release);
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::thread worker_;
  std::atomic<bool> pending_{false};  ///< whether a task waits or runs
  bool stopping_ = false;
};

/// All streams, by their handles.
struct Streams {
  std::mutex mutex;
  std::unordered_map<StreamHandle, std::shared_ptr<CpuStream>> by_handle;

  /// Null for the default stream.
  std::shared_ptr<CpuStream> Find(StreamHandle handle) {
    const std::lock_guard lock(mutex);
    const auto found = by_handle.find(handle);
    return found == by_handle.end() ? nullptr : found->second;
  }
};

/// Never destroyed, as the CPU is not.
Streams& AllStreams() {
  static auto* streams = new Streams;
  return *streams;
}

}  // namespace

StreamHandle CreateCpuStream() {
  Streams& streams = AllStreams();
  auto stream = std::make_shared<CpuStream>();
  const StreamHandle handle = stream.get();
  const std::lock_guard lock(streams.mutex);
  streams.by_handle.emplace(handle, std::move(stream));
  return handle;
}

void DestroyCpuStream(StreamHandle handle) noexcept {
  Streams& streams = AllStreams();
  // The stream goes when the lock is released: its tasks may need others.
  decltype(streams.by_handle)::node_type stream;
  const std::lock_guard lock(streams.mutex);
  stream = streams.by_handle.extract(handle);
}

void SynchronizeCpuStream(StreamHandle handle) {
  if (const auto stream = AllStreams().Find(handle)) stream->Drain();
}

void SynchronizeCpuStreams() {
  Streams& streams = AllStreams();
  std::vector<std::shared_ptr<CpuStream>> all;
  {
    const std::lock_guard lock(streams.mutex);
    for (const auto& [handle, stream] : streams.by_handle)
      all.push_back(stream);
  }
  for (const auto& stream : all)
    stream->Drain();
}

void EnqueueOnCpu(StreamHandle handle, std::function<void()> task) {
  const auto stream = handle == nullptr ? nullptr : AllStreams().Find(handle);
  if (stream && handle != CurrentStream(Device())) {
    stream->Push(std::move(task));
    return;
  }
  if (stream) stream->Drain();
  task();
}

void CpuEvent::Record(StreamHandle stream) {
  mark_ = std::make_shared<CpuMark>(false);
  const auto found = AllStreams().Find(stream);
  if (found && !found->IsIdle()) {
    found->Push([mark = mark_] { mark->Pass(); });
  } else {
    mark_->Pass();
  }
}

}  // namespace infini_train
