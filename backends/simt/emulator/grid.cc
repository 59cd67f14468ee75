#include "backends/simt/emulator/grid.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>

#include "backends/simt/emulator/block_runner.h"
#include "backends/simt/emulator/options.h"
#include "backends/simt/emulator/traffic.h"

namespace infini_train::simt::emulator {
namespace {

std::atomic<std::uint64_t> total_bytes_read{0};
std::atomic<std::uint64_t> total_bytes_written{0};

/// A launch whose blocks several threads take.
class GridRun {
 public:
  GridRun(const Launched& launched, int threads)
      : launched_(launched),
        total_(launched.geometry.grid_x * launched.geometry.grid_y * launched.geometry.grid_z),
        chunk_(std::clamp<std::int64_t>(total_ / (std::int64_t{threads} * 8), 1, 64)) {}

  /// Runs blocks until there are none left. `after_chunk()` is called now and then.
  template <typename AfterChunk>
  void Work(AfterChunk&& after_chunk) {
    BlockRunner& runner = BlockRunner::OfThread();
    runner.Begin(launched_);
    lane.bytes_read = 0;
    lane.bytes_written = 0;
    for (;;) {
      const std::int64_t first = next_.fetch_add(chunk_, std::memory_order_relaxed);
      if (first >= total_) break;
      RunBlocks(runner, first, std::min(first + chunk_, total_));
      after_chunk();
    }
    total_bytes_read.fetch_add(lane.bytes_read, std::memory_order_relaxed);
    total_bytes_written.fetch_add(lane.bytes_written, std::memory_order_relaxed);
  }

  bool HasBlocksLeft() const { return next_.load(std::memory_order_relaxed) < total_; }

  std::optional<std::string>& fault() { return fault_; }

  int helpers = 0;  ///< threads of the pool in Work; guarded by the pool's mutex

 private:
  void RunBlocks(BlockRunner& runner, std::int64_t first, std::int64_t last) {
    const Geometry& grid = launched_.geometry;
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t row = block / grid.grid_x;
      std::optional<std::string> fault =
          runner.Run(block % grid.grid_x, row % grid.grid_y, row / grid.grid_y);
      if (fault) {
        KeepFirst(block, std::move(*fault));
        return;
      }
    }
  }

  void KeepFirst(std::int64_t block, std::string message) {
    const std::lock_guard lock(fault_mutex_);
    if (!fault_ || block < faulty_block_) {
      faulty_block_ = block;
      fault_ = std::move(message);
    }
    next_.store(total_, std::memory_order_relaxed);
  }

  const Launched& launched_;
  const std::int64_t total_;
  const std::int64_t chunk_;
  std::atomic<std::int64_t> next_{0};
  std::mutex fault_mutex_;
  std::int64_t faulty_block_ = 0;
  std::optional<std::string> fault_;
};

/// Threads that help with launches. They live as long as the process.
class Helpers {
 public:
  static Helpers& Get() {
    static auto* helpers = new Helpers;
    return *helpers;
  }

  /// Lets up to `threads` help with the run.
  void Offer(GridRun& run, int threads) {
    const std::lock_guard lock(mutex_);
    runs_.push_back(&run);
    for (; threads_ < threads; ++threads_)
      std::thread([this] { Serve(); }).detach();
    offered_.notify_all();
  }

  /// Returns when no thread works on the run any more.
  void Withdraw(GridRun& run) {
    std::unique_lock lock(mutex_);
    runs_.remove(&run);
    left_.wait(lock, [&] { return run.helpers == 0; });
  }

 private:
  void Serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      offered_.wait(lock, [&] { return !runs_.empty(); });
      GridRun& run = *runs_.front();
      ++run.helpers;
      lock.unlock();
      run.Work([] {});
      lock.lock();
      runs_.remove(&run);  // It has no blocks left to give.
      if (--run.helpers == 0) left_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable offered_;
  std::condition_variable left_;
  std::list<GridRun*> runs_;
  int threads_ = 0;
};

/// Launches shorter than this are not worth waking another thread for.
constexpr std::chrono::microseconds kWorthHelp{30};

}  // namespace

std::optional<std::string> RunGrid(const Launched& launched) {
  const int threads = GetOptions().threads;
  GridRun run(launched, threads);
  if (threads == 1) {
    run.Work([] {});
    return std::move(run.fault());
  }
  const auto start = std::chrono::steady_clock::now();
  bool offered = false;
  run.Work([&] {
    if (offered || !run.HasBlocksLeft()) return;
    if (std::chrono::steady_clock::now() - start < kWorthHelp) return;
    Helpers::Get().Offer(run, threads - 1);
    offered = true;
  });
  if (offered) Helpers::Get().Withdraw(run);
  return std::move(run.fault());
}

Traffic GetTraffic() {
  return {total_bytes_read.load(std::memory_order_relaxed),
          total_bytes_written.load(std::memory_order_relaxed)};
}

}  // namespace infini_train::simt::emulator
