#pragma once

#include <algorithm>
#include <exception>
#include <unordered_map>

#include "backends/simt/dialect.h"
#include "infini_train/core/device/device_guard.h"

/// Launches that need not wait for each other, on two streams: while one ends, another begins.
namespace infini_train::simt {

inline constexpr int kMaxBranches = 2;

namespace detail {

inline thread_local int current_branch = 0;

/// A stream of the calling thread beside its current one, and events for the ways there and back.
/// They live as long as the process: the runtime may be gone before a thread's objects are.
struct BranchStream {
  StreamHandle stream = nullptr;
  EventHandle forked = nullptr, joined = nullptr;

  static const BranchStream& Of(Device device, DeviceGuardImpl& runtime) {
    thread_local std::unordered_map<int, BranchStream> streams;
    BranchStream& branch = streams[device.index()];
    if (branch.stream == nullptr) {
      branch.forked = runtime.CreateEvent();
      branch.joined = runtime.CreateEvent();
      branch.stream = runtime.CreateStream(0);
    }
    return branch;
  }
};

}  // namespace detail

/// The branch whose launches the calling thread makes; 0 outside of branches. Libraries whose
/// handles keep memory for their kernels need a handle for each.
inline int CurrentBranch() {
  return detail::current_branch;
}

/// Branch 0 is the calling thread's current stream, the other one begins behind what is on it.
class Branches {
 public:
  /// For `count` pieces of work.
  Branches(const Context& context, std::int64_t count)
      : context_(context), count_(std::min<std::int64_t>(count, kMaxBranches)) {
    if (count_ < 2) return;
    const DeviceGuard guard(context.device);
    const StreamHandle stream = CurrentStream(context.device);
    runtime_ = &GetDeviceGuardImpl(context.device.type());
    other_ = detail::BranchStream::Of(context.device, *runtime_);
    runtime_->RecordEvent(other_.forked, stream);
    runtime_->StreamWaitEvent(other_.stream, other_.forked);
  }
  ~Branches() {
    try {
      Join();
    } catch (const std::exception&) {
      // What is thrown already says more.
    }
  }
  Branches(const Branches&) = delete;
  Branches& operator=(const Branches&) = delete;

  int count() const { return static_cast<int>(count_); }

  /// Calls `body(context)` in a branch: what it launches, and the ops that it calls, run there.
  template <typename Body>
  void Run(int branch, const Body& body) {
    if (branch == 0) {
      body(context_);
      return;
    }
    const StreamGuard guard(context_.device, other_.stream);
    const Entered entered(branch);
    body(Context(context_.device, static_cast<NativeStream>(other_.stream), context_.op));
  }

  /// What is on the calling thread's stream from now on waits for all branches.
  void Join() {
    if (runtime_ == nullptr) return;
    DeviceGuardImpl& runtime = *runtime_;
    runtime_ = nullptr;
    const DeviceGuard guard(context_.device);
    runtime.RecordEvent(other_.joined, other_.stream);
    runtime.StreamWaitEvent(CurrentStream(context_.device), other_.joined);
  }

 private:
  struct Entered {
    explicit Entered(int branch) { detail::current_branch = branch; }
    ~Entered() { detail::current_branch = 0; }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
  };

  Context context_;
  std::int64_t count_;
  DeviceGuardImpl* runtime_ = nullptr;  ///< while there is something to join
  detail::BranchStream other_;
};

}  // namespace infini_train::simt
