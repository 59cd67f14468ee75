#include "infini_train/parallel/ccl/call_checker.h"

#include <utility>

#include "infini_train/parallel/ccl/environment.h"

namespace infini_train::parallel {

std::unique_ptr<CallChecker> CallChecker::Create(const UniqueId& id, int rank, int size) {
  static auto* rooms = new MeetingRooms;  // Never destroyed: static objects may hold communicators.
  if (!CclChecks()) return nullptr;
  return std::make_unique<CallChecker>(rooms->Find(id, size), rank);
}

CallChecker::CallChecker(std::shared_ptr<MeetingRoom> room, int rank)
    : room_(std::move(room)), rank_(rank), numbers_(rank, room_->size()) {}

void CallChecker::Post(const CollectiveCall& call) {
  const std::size_t seat = SeatOf(call, rank_);
  posted_.push_back({room_->Enter(numbers_.Next(call), seat, Party{.call = call}), seat});
}

void CallChecker::Await() {
  const std::vector<Posted> posted = std::exchange(posted_, {});
  try {
    for (const auto& [meeting, seat] : posted) {
      room_->Await(*meeting, seat, 1);
      room_->Leave(*meeting);
    }
  } catch (const std::exception& error) {
    room_->Fail(error.what());
    throw;
  }
}

}  // namespace infini_train::parallel
