#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/parallel/ccl/collective_call.h"
#include "infini_train/parallel/in_process/meeting.h"

namespace infini_train::parallel {

/// A rank's side of one call.
struct Operation {
  std::shared_ptr<MeetingRoom> room;
  int rank = 0;
  Device device;
  StreamHandle stream = nullptr;
  MeetingKey key;
  CollectiveCall call;  ///< data that only moves is bytes
  const void* send = nullptr;
  void* recv = nullptr;
};

/// Does the operations of one thread together: none waits for what another needs to start. Enqueues
/// their work; on the host, does it. When it throws Error, their rooms have failed.
void RunOperations(const std::vector<Operation>& operations);

}  // namespace infini_train::parallel
