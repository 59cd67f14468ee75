#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/parallel/ccl/collective_call.h"

namespace infini_train::parallel {

/// Which call of a group of ranks: of all of them, or of one that sends and one that receives.
struct MeetingKey {
  int from = kAll;
  int to = kAll;
  std::uint64_t number = 0;

  static constexpr int kAll = -1;
  auto operator<=>(const MeetingKey&) const = default;

  /// A rank has the seat of its number; a sender the first and a receiver the second.
  int NumSeats(int size) const { return from == kAll ? size : 2; }
  int RankAt(int seat) const { return from == kAll ? seat : seat == 0 ? from : to; }
};

/// A rank's numbers for its calls, which agree with those of the others.
class CallNumbers {
 public:
  CallNumbers(int rank, int size);
  MeetingKey Next(const CollectiveCall& call);

 private:
  const int rank_;
  std::uint64_t calls_ = 0;              ///< of all ranks together
  std::vector<std::uint64_t> sent_;      ///< to each rank
  std::vector<std::uint64_t> received_;  ///< from each rank
};

/// Where a rank sits that makes a call.
std::size_t SeatOf(const CollectiveCall& call, int rank);

inline constexpr int kMaxStages = 3;

/// What a rank brings to a call.
struct Party {
  CollectiveCall call;
  const void* send = nullptr;
  void* recv = nullptr;
  Device device = {};
  /// The events of its stream, one for each stage that it has done; null on the host.
  std::array<EventHandle, kMaxStages> events{};
};

/// One call of some ranks: each brings its party, does the stages in order and leaves.
struct Meeting {
  Meeting(const MeetingKey& name, int size);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  const MeetingKey key;
  std::vector<std::optional<Party>> parties;  ///< by seat
  std::vector<int> stages;                    ///< by seat: how many are done
  std::size_t left = 0;                       ///< seats that are empty again
};

/// Threads that meet. The first that fails ends all present and future meetings with its message.
class MeetingRoom {
 public:
  MeetingRoom(int size, std::chrono::milliseconds timeout);

  int size() const { return size_; }

  /// Waits for all ranks. Throws Error when the rank was here before, or others do not come.
  void Join(int rank);

  /// Brings a party: its stage 1 is done. Throws Error after a failure.
  std::shared_ptr<Meeting> Enter(const MeetingKey& key, std::size_t seat, Party party);
  /// Waits until all have done `stage`. Throws Error after a failure or the timeout, and where the
  /// calls do not match.
  void Await(const Meeting& meeting, std::size_t seat, int stage);
  /// One more stage is done; `event` marks it in the work of a device.
  void Advance(Meeting& meeting, std::size_t seat, EventHandle event);
  void Leave(Meeting& meeting);

  /// While in scope, a rank uses memory of others: none of them gets out of a failed call.
  class UseOfMemory {
   public:
    /// Throws Error after a failure.
    explicit UseOfMemory(MeetingRoom& room);
    ~UseOfMemory();
    UseOfMemory(const UseOfMemory&) = delete;
    UseOfMemory& operator=(const UseOfMemory&) = delete;

   private:
    MeetingRoom& room_;
  };

  /// Ends all meetings, and waits until nobody uses memory of others. The first failure counts.
  void Fail(const std::string& message) noexcept;
  /// The message of the first failure; empty for none.
  std::string failure() const;

 private:
  void ThrowIfFailed() const;
  std::string Missing(const std::vector<int>& ranks) const;
  template <typename Done>
  bool WaitUntil(std::unique_lock<std::mutex>& lock, const Done& done);

  const int size_;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> joined_;
  std::map<MeetingKey, std::shared_ptr<Meeting>> meetings_;
  int using_memory_ = 0;
  std::string failure_;
};

/// The rooms of communicators, by their names.
class MeetingRooms {
 public:
  /// The room of a communicator of `size` ranks; made for the first of them, and kept as long as
  /// one of them has it. Throws Error when others expect another number of ranks.
  std::shared_ptr<MeetingRoom> Find(const UniqueId& id, int size);

 private:
  std::mutex mutex_;
  std::map<UniqueId, std::weak_ptr<MeetingRoom>> rooms_;
};

}  // namespace infini_train::parallel
