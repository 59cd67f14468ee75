#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/simt/emulator/fiber.h"
#include "backends/simt/emulator/platform.h"
#include "backends/simt/emulator/shared_memory.h"

namespace infini_train::simt::emulator {

/// Runs the lanes of a block on the calling thread.
///
/// Lanes run to their end one after another on the thread's stack. A lane that has to wait leaves
/// its stack as it is, and the block goes on upon another fiber: with a lane that no longer waits,
/// or else with the next one that has not started.
class BlockRunner {
 public:
  /// The runner of the calling thread.
  static BlockRunner& OfThread();

  BlockRunner();
  ~BlockRunner();

  /// Prepares for the blocks of a launch.
  void Begin(const Launched& launched);
  /// Runs one block. Returns the message of its fault, if it had one.
  std::optional<std::string> Run(std::int64_t x, std::int64_t y, std::int64_t z);

  /// Calls of the running lane.
  void SyncBlock(const Place& place);
  void CallGroup(const GroupCall& call, const Place& place);
  SharedMemory& shared_memory() { return shared_; }

 private:
  enum class State : std::uint8_t { kUnstarted, kRunning, kAtBarrier, kInGroup, kReturned };

  struct Waiter {
    Waiter* next = nullptr;
    Fiber* fiber = nullptr;
    Place place;
    GroupCall call{GroupCallKind::kSync, 1};
  };

  /// First in, first out.
  struct WaitList {
    Waiter* first = nullptr;
    Waiter* last = nullptr;

    bool empty() const { return first == nullptr; }
    void Push(Waiter* waiter);
    Waiter* Pop();
    void TakeAll(WaitList& other);
  };

  /// A call that some lanes of a logical group have made and others not yet.
  struct PendingCall {
    int arrived = 0;
    WaitList waiters;
  };

  static Fiber& ContinueOnFiber(void* runner);
  /// Runs lanes that have not started on the current fiber, while none is ready to go on.
  void StartLanes();
  /// The fiber that goes on when the current one has no lane; null: start lanes here.
  Fiber* FindNext();
  /// Returns when the lane, now in `list`, has been moved to `ready_` and is its first.
  void Wait(WaitList& list, State state);
  void Complete(const GroupCall& call, int first_lane);
  void EndLane();
  void Fail(std::string message);
  std::string DescribeWaiting(const Waiter* example) const;
  std::string DescribeDeadlock() const;

  FiberSet fibers_;
  SharedMemory shared_;
  const Launched* launched_ = nullptr;
  int block_size_ = 0;
  int warp_size_ = 0;
  int next_lane_ = 0;  ///< the first lane that has not started
  int returned_ = 0;
  WaitList ready_;
  WaitList at_barrier_;
  int arrived_at_barrier_ = 0;
  bool has_fault_ = false;
  std::string fault_;
  std::array<State, kMaxBlockSize> states_{};
  std::vector<Waiter> waiters_;       ///< by lane
  std::vector<PendingCall> pending_;  ///< by first lane of the group
};

}  // namespace infini_train::simt::emulator
