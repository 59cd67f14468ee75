#include "infini_train/parallel/in_process/meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "infini_train/core/error.h"
#include "infini_train/parallel/ccl/environment.h"

namespace infini_train::parallel {

CallNumbers::CallNumbers(int rank, int size)
    : rank_(rank),
      sent_(static_cast<std::size_t>(size)),
      received_(static_cast<std::size_t>(size)) {}

MeetingKey CallNumbers::Next(const CollectiveCall& call) {
  const auto peer = static_cast<std::size_t>(call.root);
  if (call.kind == Collective::kSend) return {rank_, call.root, sent_[peer]++};
  if (call.kind == Collective::kRecv) return {call.root, rank_, received_[peer]++};
  return {.number = calls_++};
}

std::size_t SeatOf(const CollectiveCall& call, int rank) {
  if (call.kind == Collective::kSend) return 0;
  if (call.kind == Collective::kRecv) return 1;
  return static_cast<std::size_t>(rank);
}

Meeting::Meeting(const MeetingKey& name, int size) : key(name) {
  const auto seats = static_cast<std::size_t>(name.NumSeats(size));
  parties.resize(seats);
  stages.resize(seats);
}

Meeting::~Meeting() {
  for (const std::optional<Party>& party : parties) {
    if (!party) continue;
    for (const EventHandle event : party->events) {
      if (event != nullptr) GetDeviceGuardImpl(party->device.type()).DestroyEvent(event);
    }
  }
}

MeetingRoom::MeetingRoom(int size, std::chrono::milliseconds timeout)
    : size_(size), timeout_(timeout), joined_(static_cast<std::size_t>(size), false) {}

void MeetingRoom::ThrowIfFailed() const {
  if (!failure_.empty()) throw Error(failure_);
}

/// Whether `done` holds, at last at the timeout. Throws Error after a failure.
template <typename Done>
bool MeetingRoom::WaitUntil(std::unique_lock<std::mutex>& lock, const Done& done) {
  const bool came = changed_.wait_for(lock, timeout_, [&] { return !failure_.empty() || done(); });
  ThrowIfFailed();
  return came;
}

std::string MeetingRoom::Missing(const std::vector<int>& ranks) const {
  return fmt::format("rank{} {} did not come within {} s (INFINI_TRAIN_CCL_TIMEOUT)",
                     ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "),
                     std::chrono::duration<double>(timeout_).count());
}

void MeetingRoom::Join(int rank) {
  std::unique_lock lock(mutex_);
  ThrowIfFailed();
  const auto place = static_cast<std::size_t>(rank);
  if (joined_[place]) throw Error(fmt::format("rank {} is taken already", rank));
  joined_[place] = true;
  changed_.notify_all();
  const auto complete = [this] {
    return std::find(joined_.begin(), joined_.end(), false) == joined_.end();
  };
  changed_.wait_for(lock, timeout_, [&] { return !failure_.empty() || complete(); });
  // Who has failed since then had joined as well.
  if (complete()) return;
  ThrowIfFailed();
  std::vector<int> missing;
  for (int other = 0; other < size_; ++other) {
    if (!joined_[static_cast<std::size_t>(other)]) missing.push_back(other);
  }
  throw Error(Missing(missing));
}

std::shared_ptr<Meeting> MeetingRoom::Enter(const MeetingKey& key, std::size_t seat, Party party) {
  const std::lock_guard lock(mutex_);
  ThrowIfFailed();
  std::shared_ptr<Meeting>& meeting = meetings_[key];
  if (!meeting) meeting = std::make_shared<Meeting>(key, size_);
  meeting->parties[seat] = std::move(party);
  meeting->stages[seat] = 1;
  changed_.notify_all();
  return meeting;
}

void MeetingRoom::Await(const Meeting& meeting, std::size_t seat, int stage) {
  std::unique_lock lock(mutex_);
  std::vector<int> missing;
  const bool all_came = WaitUntil(lock, [&] {
    missing.clear();
    for (std::size_t other = 0; other < meeting.stages.size(); ++other) {
      if (meeting.stages[other] < stage)
        missing.push_back(meeting.key.RankAt(static_cast<int>(other)));
    }
    return missing.empty();
  });
  if (!all_came) throw Error(Missing(missing));
  const CollectiveCall& own = meeting.parties[seat]->call;
  for (std::size_t other = 0; other < meeting.parties.size(); ++other) {
    const CollectiveCall& call = meeting.parties[other]->call;
    if (other == seat || own.Matches(call)) continue;
    throw Error(fmt::format("the calls do not match: rank {} calls {}, rank {} {}",
                            meeting.key.RankAt(static_cast<int>(seat)), own.ToString(),
                            meeting.key.RankAt(static_cast<int>(other)), call.ToString()));
  }
}

void MeetingRoom::Advance(Meeting& meeting, std::size_t seat, EventHandle event) {
  const std::lock_guard lock(mutex_);
  meeting.parties[seat]->events[static_cast<std::size_t>(meeting.stages[seat])] = event;
  ++meeting.stages[seat];
  changed_.notify_all();
}

void MeetingRoom::Leave(Meeting& meeting) {
  const std::lock_guard lock(mutex_);
  if (++meeting.left == meeting.parties.size()) meetings_.erase(meeting.key);
}

MeetingRoom::UseOfMemory::UseOfMemory(MeetingRoom& room) : room_(room) {
  const std::lock_guard lock(room_.mutex_);
  room_.ThrowIfFailed();
  ++room_.using_memory_;
}

MeetingRoom::UseOfMemory::~UseOfMemory() {
  const std::lock_guard lock(room_.mutex_);
  --room_.using_memory_;
  room_.changed_.notify_all();
}

void MeetingRoom::Fail(const std::string& message) noexcept {
  std::unique_lock lock(mutex_);
  if (failure_.empty()) failure_ = message;
  changed_.notify_all();
  changed_.wait(lock, [this] { return using_memory_ == 0; });
}

std::string MeetingRoom::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::shared_ptr<MeetingRoom> MeetingRooms::Find(const UniqueId& id, int size) {
  const std::lock_guard lock(mutex_);
  std::erase_if(rooms_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<MeetingRoom>& known = rooms_[id];
  std::shared_ptr<MeetingRoom> room = known.lock();
  if (!room) known = room = std::make_shared<MeetingRoom>(size, CclTimeout());
  if (room->size() != size) {
    throw Error(fmt::format("other ranks expect a communicator of {} ranks", room->size()));
  }
  return room;
}

}  // namespace infini_train::parallel
