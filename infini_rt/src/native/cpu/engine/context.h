#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include <infini/rt/types.h>

#include "native/cpu/engine/worker_pool.h"
#include "native/cpu/memory/allocation_table.h"

namespace infini::rt::cpu {

class DeviceState;
class Stream;

/// The process-wide state of the CPU runtime. It is never destroyed; at exit the workers finish the
/// operation in hand, drop the rest and end, and later calls return `kErrorCudartUnloading`.
class Context {
 public:
  static Context& Get();

  int device_count() const { return static_cast<int>(devices_.size()); }
  bool ValidDevice(int index) const { return index >= 0 && index < device_count(); }
  DeviceState& device(int index) { return *devices_[static_cast<std::size_t>(index)]; }

  /// The calling thread's current device.
  static int current_device();
  static void set_current_device(int index);
  DeviceState& CurrentDevice() { return device(current_device()); }

  /// The calling thread's own default stream on the current device.
  Stream& PerThreadStream();

  AllocationTable& allocations() { return allocations_; }
  WorkerPool& workers() { return workers_; }

  /// What every call must return: `kSuccess`, the sticky error of a device fault, or
  /// `kErrorCudartUnloading`.
  runtime::Error fault() const { return fault_.load(std::memory_order_relaxed); }
  void SetFault(runtime::Error error);
  /// Whether the process is exiting.
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }

 private:
  Context();
  ~Context() = delete;
  void Stop();

  std::vector<std::unique_ptr<DeviceState>> devices_;
  AllocationTable allocations_;
  WorkerPool workers_;
  std::atomic<runtime::Error> fault_{runtime::kSuccess};
  std::atomic<bool> stopping_{false};
};

}  // namespace infini::rt::cpu
