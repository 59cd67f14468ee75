#include "infini_train/parallel/thread_ranks.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"

namespace infini_train::parallel {
namespace {

/// What the threads of the ranks share.
class Ranks {
 public:
  explicit Ranks(std::size_t size) : waiting_for_(size) {}

  /// Waits until all ranks are here; false when one has failed before.
  bool Meet() {
    std::unique_lock lock(mutex_);
    --waiting_for_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return waiting_for_ == 0 || first_failure_; });
    return waiting_for_ == 0;
  }

  /// A rank that is stopped when another fails, or has failed.
  void Add(ParallelContext& context) {
    const std::lock_guard lock(mutex_);
    contexts_.insert(&context);
    if (first_failure_) context.Stop(reason_);
  }
  void Remove(ParallelContext& context) {
    const std::lock_guard lock(mutex_);
    contexts_.erase(&context);
  }

  /// The exception that is handled ends a rank, and so all.
  void Fail(int rank, const std::string& message) {
    const std::lock_guard lock(mutex_);
    if (first_failure_) return;
    first_failure_ = std::current_exception();
    reason_ = fmt::format("rank {} failed: {}", rank, message);
    for (ParallelContext* context : contexts_)
      context->Stop(reason_);
    changed_.notify_all();
  }

  /// After all threads have ended.
  void Rethrow() const {
    if (first_failure_) std::rethrow_exception(first_failure_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t waiting_for_;
  std::exception_ptr first_failure_;
  std::string reason_;
  std::set<ParallelContext*> contexts_;
};

void RunRank(Ccl& ccl, const UniqueId& id, int rank, int size, Device device, Ranks& ranks,
             const std::function<void(ParallelContext&)>& body) {
  try {
    GetDeviceGuardImpl(device.type()).SetDevice(device.index());
    if (!ranks.Meet()) return;
    ParallelContext context(ccl.CreateCommunicator(id, rank, size, device), rank,
                            ParallelDegrees{.data = size});
    ranks.Add(context);
    try {
      body(context);
    } catch (const std::exception& error) {
      ranks.Fail(rank, error.what());
    }
    ranks.Remove(context);
  } catch (const std::exception& error) {
    ranks.Fail(rank, error.what());
  }
}

}  // namespace

void RunThreadRanks(const std::vector<Device>& devices,
                    const std::function<void(ParallelContext&)>& body) {
  if (devices.size() != 1) {
    if (devices.empty()) throw Error("expected a device for each rank, got none");
    RunThreadRanks(GetCcl(devices.front().type()), devices, body);
    return;
  }
  GetDeviceGuardImpl(devices.front().type()).SetDevice(devices.front().index());
  ParallelContext context(devices.front());
  body(context);
}

void RunThreadRanks(Ccl& ccl, const std::vector<Device>& devices,
                    const std::function<void(ParallelContext&)>& body) {
  const UniqueId id = ccl.CreateUniqueId();
  const int size = static_cast<int>(devices.size());
  Ranks ranks(devices.size());
  const auto run = [&](int rank) {
    RunRank(ccl, id, rank, size, devices[static_cast<std::size_t>(rank)], ranks, body);
  };
  std::vector<std::thread> threads;
  try {
    for (int rank = 1; rank < size; ++rank)
      threads.emplace_back(run, rank);
  } catch (const std::exception& error) {
    // The system has no thread for it; those that run give up before they begin.
    ranks.Fail(static_cast<int>(threads.size()) + 1, error.what());
  }
  run(0);
  for (std::thread& thread : threads)
    thread.join();
  ranks.Rethrow();
}

}  // namespace infini_train::parallel
