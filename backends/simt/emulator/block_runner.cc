#include "backends/simt/emulator/block_runner.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "backends/simt/emulator/fault.h"
#include "backends/simt/emulator/options.h"

namespace infini_train::simt {
namespace emulator {

constinit thread_local LaneView lane;

namespace {

bool SamePlace(const Place& a, const Place& b) {
  static_assert(sizeof(Place) == sizeof(void*), "a place is a pointer to its description");
  if (std::bit_cast<const void*>(a) == std::bit_cast<const void*>(b)) return true;
  return a.line() == b.line() && a.column() == b.column() &&
         std::strcmp(a.file_name(), b.file_name()) == 0;
}

std::string NameOf(const GroupCall& call) {
  switch (call.kind) {
    case GroupCallKind::kSync:
      return fmt::format("SyncGroup<{}>", call.width);
    case GroupCallKind::kShuffle:
      return fmt::format("Shuffle<{}> of {} bytes", call.width, call.size);
    case GroupCallKind::kBallot:
      return fmt::format("Ballot<{}>", call.width);
  }
  return "";
}

/// "lane 3", "lanes 0-31, 40".
std::string ListLanes(const std::vector<int>& lanes) {
  std::string text = lanes.size() == 1 ? "lane " : "lanes ";
  for (std::size_t i = 0; i < lanes.size();) {
    std::size_t last = i;
    while (last + 1 < lanes.size() && lanes[last + 1] == lanes[last] + 1)
      ++last;
    if (i > 0) text += ", ";
    text += last == i ? fmt::format("{}", lanes[i]) : fmt::format("{}-{}", lanes[i], lanes[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

void BlockRunner::WaitList::Push(Waiter* waiter) {
  waiter->next = nullptr;
  if (first == nullptr) {
    first = waiter;
  } else {
    last->next = waiter;
  }
  last = waiter;
}

BlockRunner::Waiter* BlockRunner::WaitList::Pop() {
  Waiter* waiter = first;
  first = waiter->next;
  return waiter;
}

void BlockRunner::WaitList::TakeAll(WaitList& other) {
  if (other.empty()) return;
  if (empty()) {
    first = other.first;
  } else {
    last->next = other.first;
  }
  last = other.last;
  other.first = nullptr;
}

BlockRunner& BlockRunner::OfThread() {
  thread_local BlockRunner runner;
  return runner;
}

BlockRunner::BlockRunner()
    : fibers_(&ContinueOnFiber, this), waiters_(kMaxBlockSize), pending_(kMaxBlockSize) {}

BlockRunner::~BlockRunner() = default;

void BlockRunner::Begin(const Launched& launched) {
  launched_ = &launched;
  block_size_ = launched.geometry.block;
  warp_size_ = GetOptions().warp_size;
  lane.block_size = block_size_;
  lane.check_races = GetOptions().check_races;
  lane.early = false;
  lane.grid[0] = launched.geometry.grid_x;
  lane.grid[1] = launched.geometry.grid_y;
  lane.grid[2] = launched.geometry.grid_z;
  shared_.BeginLaunch(launched.geometry.dynamic_shared_bytes);
}

std::optional<std::string> BlockRunner::Run(std::int64_t x, std::int64_t y, std::int64_t z) {
  lane.block[0] = x;
  lane.block[1] = y;
  lane.block[2] = z;
  shared_.BeginBlock();
  if (launched_->geometry.begins_early) ForgetEarlyReads();
  next_lane_ = 0;
  returned_ = 0;
  has_fault_ = false;
  StartLanes();
  while (returned_ < block_size_) {
    if (Fiber* next = FindNext()) {
      // An idle thread is switched to when all lanes have returned.
      fibers_.SwitchTo(*next);
    } else {
      StartLanes();
    }
  }
  if (has_fault_) return std::move(fault_);
  return std::nullopt;
}

Fiber& BlockRunner::ContinueOnFiber(void* runner) {
  auto& self = *static_cast<BlockRunner*>(runner);
  for (;;) {
    self.StartLanes();
    if (Fiber* next = self.FindNext()) return *next;
  }
}

void BlockRunner::StartLanes() {
  while (next_lane_ < block_size_ && ready_.empty()) {
    try {
      do {
        lane.thread = next_lane_++;
        states_[lane.thread] = State::kRunning;
        lane.early = launched_->geometry.begins_early;
        launched_->run_lane(launched_);
        EndLane();
        if (lane.early) [[unlikely]]
          Fail(fmt::format("block ({}, {}, {}), lane {} ended without WaitForEarlier()",
                           lane.block[0], lane.block[1], lane.block[2], lane.thread));
      } while (next_lane_ < block_size_ && ready_.empty());
    } catch (const LaneFault& fault) {
      EndLane();
      Fail(fault.message);
    } catch (const LaneCancelled&) {
      EndLane();
    } catch (const std::exception& error) {
      EndLane();
      Fail(fmt::format("exception in block ({}, {}, {}), lane {}: {}", lane.block[0], lane.block[1],
                       lane.block[2], lane.thread, error.what()));
    } catch (...) {
      EndLane();
      Fail(fmt::format("exception in block ({}, {}, {}), lane {}", lane.block[0], lane.block[1],
                       lane.block[2], lane.thread));
    }
  }
}

Fiber* BlockRunner::FindNext() {
  for (;;) {
    if (!ready_.empty()) return ready_.Pop()->fiber;
    if (next_lane_ < block_size_) return nullptr;
    if (returned_ == block_size_) return &fibers_.thread();
    Fail(DescribeDeadlock());
  }
}

void BlockRunner::Wait(WaitList& list, State state) {
  const int self = lane.thread;
  const bool early = lane.early;
  Fiber& fiber = fibers_.current();
  waiters_[self].fiber = &fiber;
  states_[self] = state;
  list.Push(&waiters_[self]);
  if (ready_.empty() && next_lane_ == block_size_) Fail(DescribeDeadlock());
  Fiber& next = ready_.empty() ? fibers_.TakeIdle() : *ready_.Pop()->fiber;
  if (&next != &fiber) fibers_.SwitchTo(next);
  lane.thread = self;
  lane.early = early;
  states_[self] = State::kRunning;
  if (has_fault_) throw LaneCancelled();
}

void BlockRunner::SyncBlock(const Place& place) {
  Waiter& self = waiters_[lane.thread];
  self.place = place;
  if (arrived_at_barrier_ > 0 && !SamePlace(place, at_barrier_.first->place)) {
    ThrowFault(fmt::format("divergent barrier: {}; this lane calls SyncBlock elsewhere",
                           DescribeWaiting(at_barrier_.first)),
               place);
  }
  if (++arrived_at_barrier_ < block_size_) {
    Wait(at_barrier_, State::kAtBarrier);
    return;
  }
  arrived_at_barrier_ = 0;
  ready_.TakeAll(at_barrier_);
  if (lane.check_races) shared_.races().OnBarrier();
}

void BlockRunner::CallGroup(const GroupCall& call, const Place& place) {
  Waiter& self = waiters_[lane.thread];
  self.place = place;
  self.call = call;
  if (call.width > warp_size_) {
    ThrowFault(fmt::format("{}: the device's warp has {} lanes", NameOf(call), warp_size_), place);
  }
  const int first_lane = lane.thread & ~(call.width - 1);
  if (first_lane + call.width > block_size_) {
    ThrowFault(fmt::format("{}: a block of {} lanes cuts the group off", NameOf(call), block_size_),
               place);
  }
  PendingCall& pending = pending_[first_lane];
  if (pending.arrived > 0) {
    const Waiter& other = *pending.waiters.first;
    if (other.call.kind != call.kind || other.call.width != call.width ||
        other.call.size != call.size || !SamePlace(other.place, place)) {
      ThrowFault(fmt::format("divergent group call: {}; this lane calls {}",
                             DescribeWaiting(&other), NameOf(call)),
                 place);
    }
  }
  if (++pending.arrived < call.width) {
    Wait(pending.waiters, State::kInGroup);
    return;
  }
  pending.arrived = 0;
  Complete(call, first_lane);
  ready_.TakeAll(pending.waiters);
  if (lane.check_races) shared_.races().OnGroupCall(first_lane, call.width);
}

void BlockRunner::Complete(const GroupCall& call, int first_lane) {
  const Waiter* const group = &waiters_[first_lane];
  if (call.kind == GroupCallKind::kShuffle) {
    for (int i = 0; i < call.width; ++i)
      std::memcpy(group[i].call.output, group[group[i].call.source].call.input, call.size);
  } else if (call.kind == GroupCallKind::kBallot) {
    std::uint64_t votes = 0;
    for (int i = 0; i < call.width; ++i)
      votes |= std::uint64_t{*static_cast<const bool*>(group[i].call.input)} << i;
    for (int i = 0; i < call.width; ++i)
      *static_cast<std::uint64_t*>(group[i].call.output) = votes;
  }
}

void BlockRunner::EndLane() {
  states_[lane.thread] = State::kReturned;
  ++returned_;
}

void BlockRunner::Fail(std::string message) {
  if (has_fault_) return;
  has_fault_ = true;
  fault_ = std::move(message);
  // Lanes that have not started never do; those that wait go on, to end.
  returned_ += block_size_ - next_lane_;
  next_lane_ = block_size_;
  arrived_at_barrier_ = 0;
  at_barrier_ = {};
  for (PendingCall& pending : pending_)
    pending = {};
  ready_ = {};
  for (int i = 0; i < block_size_; ++i) {
    if (states_[i] == State::kAtBarrier || states_[i] == State::kInGroup) ready_.Push(&waiters_[i]);
  }
}

std::string BlockRunner::DescribeWaiting(const Waiter* example) const {
  const auto index = static_cast<std::size_t>(example - waiters_.data());
  const State state = states_[index];
  std::vector<int> lanes;
  for (int i = 0; i < next_lane_; ++i) {
    if (states_[i] == state && SamePlace(waiters_[i].place, example->place)) lanes.push_back(i);
  }
  return fmt::format("{} {} in {} at {}", ListLanes(lanes), lanes.size() == 1 ? "waits" : "wait",
                     state == State::kAtBarrier ? "SyncBlock" : NameOf(example->call),
                     ToString(example->place));
}

std::string BlockRunner::DescribeDeadlock() const {
  constexpr std::size_t kMaxPlaces = 4;
  std::vector<const Waiter*> places;
  std::vector<int> returned;
  for (int i = 0; i < block_size_; ++i) {
    if (states_[i] == State::kReturned) returned.push_back(i);
    if (states_[i] != State::kAtBarrier && states_[i] != State::kInGroup) continue;
    const bool is_new = std::none_of(places.begin(), places.end(), [&](const Waiter* other) {
      return states_[other - waiters_.data()] == states_[i] &&
             SamePlace(other->place, waiters_[i].place);
    });
    if (is_new && places.size() < kMaxPlaces) places.push_back(&waiters_[i]);
  }
  std::string text = "deadlock: ";
  for (const Waiter* place : places)
    text += (place == places.front() ? "" : ", ") + DescribeWaiting(place);
  if (!returned.empty()) {
    text +=
        fmt::format(", {} {} returned", ListLanes(returned), returned.size() == 1 ? "has" : "have");
  }
  return DescribeFault(text, places.front()->place);
}

void CallGroup(const GroupCall& call, const Place& place) {
  BlockRunner::OfThread().CallGroup(call, place);
}

}  // namespace emulator

void SyncBlock(Place place) {
  emulator::BlockRunner::OfThread().SyncBlock(place);
}

}  // namespace infini_train::simt
