#pragma once

#include <memory>
#include <vector>

#include "infini_train/parallel/ccl.h"
#include "infini_train/parallel/ccl/collective_call.h"
#include "infini_train/parallel/in_process/meeting.h"

namespace infini_train::parallel {

/// Compares the calls of ranks that are threads of this process, before they are made.
class CallChecker {
 public:
  /// Null unless INFINI_TRAIN_CCL_CHECK asks for it.
  static std::unique_ptr<CallChecker> Create(const UniqueId& id, int rank, int size);

  CallChecker(std::shared_ptr<MeetingRoom> room, int rank);

  /// Tells the others of a call.
  void Post(const CollectiveCall& call);
  /// Waits for the others' calls to those that were posted. Throws Error, as it does on the other
  /// ranks, where they do not match or do not come.
  void Await();

  void Stop(const std::string& reason) noexcept { room_->Fail(reason); }

 private:
  struct Posted {
    std::shared_ptr<Meeting> meeting;
    std::size_t seat;
  };

  const std::shared_ptr<MeetingRoom> room_;
  const int rank_;
  CallNumbers numbers_;
  std::vector<Posted> posted_;
};

}  // namespace infini_train::parallel
