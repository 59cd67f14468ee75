// MCCL between the threads of a process.
#include <mccl.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "mccl_group.h"

struct mcclComm {
  std::shared_ptr<maca_standin::Group> group;
  int rank = 0;
  int device = 0;
};

namespace {

using maca_standin::Call;
using maca_standin::CallKind;
using maca_standin::Group;
using maca_standin::Meeting;

std::atomic<std::uint64_t> next_id{1};

/// The group of an id; forgotten with its last communicator.
std::shared_ptr<Group> FindGroup(const mcclUniqueId& id, int size) {
  static std::mutex mutex;
  static std::map<std::uint64_t, std::weak_ptr<Group>> groups;
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  const std::lock_guard lock(mutex);
  std::weak_ptr<Group>& known = groups[number];
  std::shared_ptr<Group> group = known.lock();
  if (group == nullptr) known = group = std::make_shared<Group>(size);
  return group;
}

/// Calls of the thread between mcclGroupStart and mcclGroupEnd.
struct Part {
  std::shared_ptr<Meeting> meeting;
  int place;
};
struct ThreadGroup {
  int depth = 0;
  std::vector<std::shared_ptr<Group>> joins;
  std::vector<Part> parts;
};
thread_local ThreadGroup thread_group;

/// Makes the calls of the thread together.
mcclResult_t Flush() {
  mcclResult_t result = mcclSuccess;
  const auto keep = [&](mcclResult_t found) {
    if (result == mcclSuccess) result = found;
  };
  ThreadGroup calls;
  std::swap(calls, thread_group);
  // A thread may be several ranks of a group: all are there before it waits.
  std::map<Group*, int> own;
  for (const auto& group : calls.joins)
    ++own[group.get()];
  for (const auto& [group, count] : own)
    keep(group->Join(count));
  for (const Part& part : calls.parts) {
    if (result == mcclSuccess) keep(part.meeting->Enqueue(part.place));
  }
  for (const Part& part : calls.parts) {
    if (result == mcclSuccess) keep(part.meeting->Finish(part.place));
  }
  return result;
}

mcclResult_t Make(mcclComm_t comm, Call call, int from = -1, int to = -1) {
  if (comm == nullptr || call.count > SIZE_MAX / 16 || call.type < 0 || call.type >= mcclNumTypes ||
      call.op < 0 || call.op > mcclAvg || call.root < 0 || call.root >= comm->group->size ||
      from >= comm->group->size || to >= comm->group->size) {
    return mcclInvalidArgument;
  }
  if (call.count > 0 && call.send == nullptr && call.recv == nullptr) return mcclInvalidArgument;
  call.device = comm->device;
  const bool receives = call.recv != nullptr;
  const std::shared_ptr<Meeting> meeting =
      comm->group->NextMeeting(comm->rank, from, to, from >= 0 && receives);
  const int place = from < 0 ? comm->rank : static_cast<int>(receives);
  meeting->Arrive(place, call);
  thread_group.parts.push_back({meeting, place});
  return thread_group.depth > 0 ? mcclSuccess : Flush();
}

}  // namespace

const char* mcclGetErrorString(mcclResult_t result) {
  switch (result) {
    case mcclSuccess:
      return "no error";
    case mcclUnhandledRuntimeError:
      return "unhandled runtime error";
    case mcclInternalError:
      return "internal error, or the communicator was aborted";
    case mcclInvalidArgument:
      return "invalid argument, or the ranks' arguments differ";
    default:
      return "failure";
  }
}

mcclResult_t mcclGetVersion(int* version) {
  *version = 0;
  return mcclSuccess;
}

mcclResult_t mcclGetUniqueId(mcclUniqueId* id) {
  *id = {};
  const std::uint64_t number = next_id++;
  std::memcpy(id->internal, &number, sizeof(number));
  return mcclSuccess;
}

mcclResult_t mcclCommInitRank(mcclComm_t* comm, int size, mcclUniqueId id, int rank) {
  if (comm == nullptr || size < 1 || rank < 0 || rank >= size) return mcclInvalidArgument;
  int device = 0;
  if (mcGetDevice(&device) != mcSuccess) return mcclUnhandledRuntimeError;
  *comm = new mcclComm{FindGroup(id, size), rank, device};
  thread_group.joins.push_back((*comm)->group);
  return thread_group.depth > 0 ? mcclSuccess : Flush();
}

mcclResult_t mcclCommInitAll(mcclComm_t* comms, int count, const int* devices) {
  mcclUniqueId id;
  mcclGetUniqueId(&id);
  const std::shared_ptr<Group> group = FindGroup(id, count);
  for (int rank = 0; rank < count; ++rank)
    comms[rank] = new mcclComm{group, rank, devices != nullptr ? devices[rank] : rank};
  return mcclSuccess;
}

mcclResult_t mcclCommDestroy(mcclComm_t comm) {
  delete comm;
  return mcclSuccess;
}

mcclResult_t mcclCommAbort(mcclComm_t comm) {
  // What becomes of the calls of an open group is not known.
  if (comm == nullptr || thread_group.depth > 0) return mcclInvalidUsage;
  comm->group->Abort();
  // It stays where it is: other threads may be in a call with it.
  return mcclSuccess;
}

mcclResult_t mcclCommGetAsyncError(mcclComm_t comm, mcclResult_t* result) {
  *result = comm->group->aborted() ? mcclInternalError : mcclSuccess;
  return mcclSuccess;
}

mcclResult_t mcclGroupStart() {
  ++thread_group.depth;
  return mcclSuccess;
}

mcclResult_t mcclGroupEnd() {
  if (thread_group.depth == 0) return mcclInvalidUsage;
  return --thread_group.depth == 0 ? Flush() : mcclSuccess;
}

mcclResult_t mcclAllReduce(const void* send, void* recv, size_t count, mcclDataType_t type,
                           mcclRedOp_t op, mcclComm_t comm, mcStream_t stream) {
  return Make(comm, {.kind = CallKind::kAllReduce,
                     .send = send,
                     .recv = recv,
                     .count = count,
                     .type = type,
                     .op = op,
                     .stream = stream});
}

mcclResult_t mcclBroadcast(const void* send, void* recv, size_t count, mcclDataType_t type,
                           int root, mcclComm_t comm, mcStream_t stream) {
  return Make(comm, {.kind = CallKind::kBroadcast,
                     .send = send,
                     .recv = recv,
                     .count = count,
                     .type = type,
                     .root = root,
                     .stream = stream});
}

mcclResult_t mcclReduce(const void* send, void* recv, size_t count, mcclDataType_t type,
                        mcclRedOp_t op, int root, mcclComm_t comm, mcStream_t stream) {
  return Make(comm, {.kind = CallKind::kReduce,
                     .send = send,
                     .recv = comm != nullptr && comm->rank == root ? recv : nullptr,
                     .count = count,
                     .type = type,
                     .op = op,
                     .root = root,
                     .stream = stream});
}

mcclResult_t mcclAllGather(const void* send, void* recv, size_t send_count, mcclDataType_t type,
                           mcclComm_t comm, mcStream_t stream) {
  return Make(comm, {.kind = CallKind::kAllGather,
                     .send = send,
                     .recv = recv,
                     .count = send_count,
                     .type = type,
                     .stream = stream});
}

mcclResult_t mcclReduceScatter(const void* send, void* recv, size_t recv_count, mcclDataType_t type,
                               mcclRedOp_t op, mcclComm_t comm, mcStream_t stream) {
  return Make(comm, {.kind = CallKind::kReduceScatter,
                     .send = send,
                     .recv = recv,
                     .count = recv_count,
                     .type = type,
                     .op = op,
                     .stream = stream});
}

mcclResult_t mcclSend(const void* data, size_t count, mcclDataType_t type, int peer,
                      mcclComm_t comm, mcStream_t stream) {
  if (comm == nullptr || peer < 0) return mcclInvalidArgument;
  return Make(
      comm,
      {.kind = CallKind::kSendRecv, .send = data, .count = count, .type = type, .stream = stream},
      comm->rank, peer);
}

mcclResult_t mcclRecv(void* data, size_t count, mcclDataType_t type, int peer, mcclComm_t comm,
                      mcStream_t stream) {
  if (comm == nullptr || peer < 0) return mcclInvalidArgument;
  return Make(
      comm,
      {.kind = CallKind::kSendRecv, .recv = data, .count = count, .type = type, .stream = stream},
      peer, comm->rank);
}
