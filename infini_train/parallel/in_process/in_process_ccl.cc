#include "infini_train/parallel/in_process_ccl.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "infini_train/core/device/cpu_stream.h"
#include "infini_train/parallel/in_process/operation.h"

namespace infini_train::parallel {
namespace {

/// The calls of the calling thread's open group.
struct PendingGroup {
  bool open = false;
  std::vector<Operation> operations;
};
thread_local PendingGroup pending;

/// An event of the CPU's, which the threads of streams use as well.
class CpuJoin {
 public:
  CpuJoin() : impl_(GetDeviceGuardImpl(DeviceType::kCPU)), event_(impl_.CreateEvent()) {}
  ~CpuJoin() { impl_.DestroyEvent(event_); }
  CpuJoin(const CpuJoin&) = delete;
  CpuJoin& operator=(const CpuJoin&) = delete;

  void Order(StreamHandle before, StreamHandle after) {
    impl_.RecordEvent(event_, before);
    impl_.StreamWaitEvent(after, event_);
  }

 private:
  DeviceGuardImpl& impl_;
  EventHandle event_;
};

/// Enqueues operations that start together.
void Submit(std::vector<Operation> operations) {
  if (operations.empty()) return;
  const StreamHandle stream = operations.front().stream;
  const bool on_cpu = std::all_of(operations.begin(), operations.end(),
                                  [](const Operation& o) { return o.device.is_cpu(); });
  if (!on_cpu) {
    RunOperations(operations);
    return;
  }
  // All on the first one's stream, the other streams held up meanwhile.
  CpuJoin join;
  for (const Operation& operation : operations) {
    if (operation.stream != stream) join.Order(operation.stream, stream);
  }
  std::vector<StreamHandle> others;
  for (const Operation& operation : operations)
    others.push_back(operation.stream);
  std::exception_ptr failure;
  const bool at_once = stream == nullptr || stream == CurrentStream(Device());
  EnqueueOnCpu(stream, [operations = std::move(operations), failed = at_once ? &failure : nullptr] {
    try {
      RunOperations(operations);
    } catch (const std::exception&) {
      // The rooms know.
      if (failed != nullptr) *failed = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
  for (const StreamHandle other : others) {
    if (other != stream) join.Order(stream, other);
  }
}

class InProcessCommunicator final : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<MeetingRoom> room, int rank, Device device)
      : room_(std::move(room)), rank_(rank), device_(device), numbers_(rank, room_->size()) {}

 protected:
  void EnqueueAllReduce(const void* send, void* recv, std::size_t count, DataType dtype,
                        ReduceOp op, StreamHandle stream) override {
    Enqueue({.kind = Collective::kAllReduce, .op = op, .dtype = dtype}, send, recv, count, stream);
  }

  void EnqueueReduceScatter(const void* send, void* recv, std::size_t count, DataType dtype,
                            ReduceOp op, StreamHandle stream) override {
    Enqueue({.kind = Collective::kReduceScatter, .op = op, .dtype = dtype}, send, recv,
            count * static_cast<std::size_t>(room_->size()), stream);
  }

  void EnqueueAllGather(const void* send, void* recv, std::size_t bytes,
                        StreamHandle stream) override {
    Enqueue({.kind = Collective::kAllGather}, send, recv, bytes, stream);
  }

  void EnqueueBroadcast(void* data, std::size_t bytes, int root, StreamHandle stream) override {
    Enqueue({.kind = Collective::kBroadcast, .root = root}, data, data, bytes, stream);
  }

  void EnqueueSend(const void* data, std::size_t bytes, int peer, StreamHandle stream) override {
    Enqueue({.kind = Collective::kSend, .root = peer}, data, nullptr, bytes, stream);
  }

  void EnqueueRecv(void* data, std::size_t bytes, int peer, StreamHandle stream) override {
    Enqueue({.kind = Collective::kRecv, .root = peer}, nullptr, data, bytes, stream);
  }

  void EnqueueAllToAll(const void* send, void* recv, std::size_t bytes,
                       StreamHandle stream) override {
    Enqueue({.kind = Collective::kAllToAll}, send, recv,
            bytes * static_cast<std::size_t>(room_->size()), stream);
  }

  void Abort(const std::string& reason) noexcept override { room_->Fail(reason); }

  std::string AsyncError() override { return room_->failure(); }

 private:
  void Enqueue(CollectiveCall call, const void* send, void* recv, std::size_t count,
               StreamHandle stream) {
    call.shape = {static_cast<std::int64_t>(count)};
    Operation operation{room_, rank_, device_, stream, numbers_.Next(call), call, send, recv};
    if (pending.open) {
      pending.operations.push_back(std::move(operation));
    } else {
      Submit({std::move(operation)});
    }
  }

  const std::shared_ptr<MeetingRoom> room_;
  const int rank_;
  const Device device_;
  CallNumbers numbers_;
};

class ThreadCcl final : public Ccl {
 public:
  std::string Name() const override { return "threads of one process"; }

  UniqueId CreateUniqueId() override {
    const std::uint64_t numbers[2] = {static_cast<std::uint64_t>(getpid()), ++next_id_};
    UniqueId id{};
    std::memcpy(id.data(), numbers, sizeof(numbers));
    return id;
  }

 protected:
  std::unique_ptr<Communicator> MakeCommunicator(const UniqueId& id, int rank, int size,
                                                 Device device) override {
    const std::shared_ptr<MeetingRoom> room = rooms_.Find(id, size);
    try {
      room->Join(rank);
    } catch (const std::exception& error) {
      room->Fail(fmt::format("rank {} could not join: {}", rank, error.what()));
      throw;
    }
    return std::make_unique<InProcessCommunicator>(room, rank, device);
  }

  void BeginGroup() override { pending.open = true; }

  void EndGroup() override {
    pending.open = false;
    Submit(std::exchange(pending.operations, {}));
  }

  void AbandonGroup() override { pending = {}; }

 private:
  std::atomic<std::uint64_t> next_id_{0};
  MeetingRooms rooms_;
};

}  // namespace

Ccl& InProcessCcl() {
  static auto* ccl = new ThreadCcl;  // Never destroyed, as runtimes are not.
  return *ccl;
}

}  // namespace infini_train::parallel
