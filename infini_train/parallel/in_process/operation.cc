#include "infini_train/parallel/in_process/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "infini_train/core/error.h"
#include "infini_train/parallel/in_process/reduce.h"

namespace infini_train::parallel {
namespace {

// Stages of a meeting, by number.
constexpr int kReady = 1;      ///< a rank's memory may be read
constexpr int kExchanged = 2;  ///< it has read what it needs
constexpr int kGathered = 3;   ///< of AllReduce: it has read the others' results

/// What a rank of n does of `count` elements.
struct Share {
  Share(std::size_t count, std::size_t n, std::size_t rank)
      : begin(count / n * rank + std::min(rank, count % n)),
        size(count / n + (rank < count % n ? 1 : 0)) {}

  std::size_t begin;
  std::size_t size;
};

std::byte* At(void* data, std::size_t offset) {
  return static_cast<std::byte*>(data) + offset;
}
const std::byte* At(const void* data, std::size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}

/// One operation, stage by stage.
class Execution {
 public:
  explicit Execution(const Operation& operation)
      : o_(operation),
        impl_(GetDeviceGuardImpl(operation.device.type())),
        on_host_(impl_.IsHostMemory()),
        seat_(SeatOf(operation.call, operation.rank)),
        count_(static_cast<std::size_t>(Numel(operation.call.shape))),
        bytes_(count_ * SizeOf(operation.call.dtype)) {}

  void Enter() {
    const OnStream scope(*this);
    Party party{o_.call, o_.send, o_.recv, o_.device};
    party.events[0] = Mark();
    meeting_ = o_.room->Enter(o_.key, seat_, std::move(party));
  }

  void Exchange() {
    AwaitStage(kReady);
    {
      const MeetingRoom::UseOfMemory use(*o_.room);
      const OnStream scope(*this);
      Move();
    }
    Advance();
  }

  void Gather() {
    AwaitStage(kExchanged);
    if (o_.call.kind != Collective::kAllReduce) return;
    {
      const MeetingRoom::UseOfMemory use(*o_.room);
      const OnStream scope(*this);
      for (std::size_t other = 0; other < NumSeats(); ++other) {
        if (other == seat_) continue;
        const Share share(count_, NumSeats(), other);
        const std::size_t size = SizeOf(o_.call.dtype);
        CopyFrom(other, At(o_.recv, share.begin * size),
                 At(PartyAt(other).recv, share.begin * size), share.size * size);
      }
    }
    Advance();
  }

  void Finish() {
    if (o_.call.kind == Collective::kAllReduce) AwaitStage(kGathered);
    o_.room->Leave(*meeting_);
  }

 private:
  /// Makes the operation's stream the current one, and its device. The host works at once.
  class OnStream {
   public:
    explicit OnStream(const Execution& execution) : device_(execution.o_.device) {
      if (!execution.on_host_) stream_.emplace(execution.o_.device, execution.o_.stream);
    }

   private:
    const DeviceGuard device_;
    std::optional<StreamGuard> stream_;
  };

  static std::size_t Index(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t NumSeats() const { return meeting_->parties.size(); }
  const Party& PartyAt(std::size_t seat) const { return *meeting_->parties[seat]; }

  EventHandle Mark() const {
    if (on_host_) return nullptr;
    const EventHandle event = impl_.CreateEvent();
    impl_.RecordEvent(event, o_.stream);
    return event;
  }

  void AwaitStage(int stage) {
    o_.room->Await(*meeting_, seat_, stage);
    if (on_host_) return;
    const DeviceGuard guard(o_.device);
    for (std::size_t other = 0; other < NumSeats(); ++other) {
      if (other != seat_) impl_.StreamWaitEvent(o_.stream, PartyAt(other).events[Index(stage - 1)]);
    }
  }

  void Advance() {
    const DeviceGuard guard(o_.device);
    o_.room->Advance(*meeting_, seat_, Mark());
  }

  void CopyFrom(std::size_t seat, void* to, const void* from, std::size_t bytes) {
    if (bytes == 0 || to == from) return;
    const Device source = PartyAt(seat).device;
    const StreamHandle stream = on_host_ ? nullptr : o_.stream;
    if (source == o_.device) {
      impl_.CopyAsync(to, from, bytes, CopyKind::kDeviceToDevice, stream);
    } else {
      impl_.CopyPeerAsync(to, o_.device.index(), from, source.index(), bytes, stream);
    }
  }

  /// Reads what this rank needs of the others' memory.
  void Move() {
    switch (o_.call.kind) {
      case Collective::kAllReduce: {
        const Share share(count_, NumSeats(), seat_);
        Reduce(share, At(o_.recv, share.begin * SizeOf(o_.call.dtype)));
        break;
      }
      case Collective::kReduceScatter:
        Reduce(Share(count_, NumSeats(), seat_), o_.recv);
        break;
      case Collective::kAllGather:
        for (std::size_t other = 0; other < NumSeats(); ++other)
          CopyFrom(other, At(o_.recv, other * bytes_), PartyAt(other).send, bytes_);
        break;
      case Collective::kBroadcast: {
        const std::size_t root = Index(o_.call.root);
        CopyFrom(root, o_.recv, PartyAt(root).send, bytes_);
        break;
      }
      case Collective::kSend:
        break;
      case Collective::kRecv:
        CopyFrom(0, o_.recv, PartyAt(0).send, bytes_);
        break;
      case Collective::kAllToAll: {
        const std::size_t part = bytes_ / NumSeats();
        for (std::size_t other = 0; other < NumSeats(); ++other)
          CopyFrom(other, At(o_.recv, other * part), At(PartyAt(other).send, seat_ * part), part);
        break;
      }
    }
  }

  void Reduce(const Share& share, void* out) {
    if (share.size == 0) return;
    std::vector<RankPart> parts;
    for (std::size_t seat = 0; seat < NumSeats(); ++seat) {
      const Party& party = PartyAt(seat);
      parts.push_back({At(party.send, share.begin * SizeOf(o_.call.dtype)), party.device});
    }
    if (parts.size() == 1) {
      CopyFrom(seat_, out, parts.front().data, bytes_);
    } else {
      ReduceParts(o_.device, parts, out, share.size, o_.call.dtype, o_.call.op);
    }
  }

  const Operation& o_;
  DeviceGuardImpl& impl_;
  const bool on_host_;
  const std::size_t seat_;
  const std::size_t count_;
  const std::size_t bytes_;
  std::shared_ptr<Meeting> meeting_;
};

}  // namespace

void RunOperations(const std::vector<Operation>& operations) {
  std::vector<Execution> executions(operations.begin(), operations.end());
  try {
    for (Execution& execution : executions)
      execution.Enter();
    for (Execution& execution : executions)
      execution.Exchange();
    for (Execution& execution : executions)
      execution.Gather();
    for (Execution& execution : executions)
      execution.Finish();
  } catch (const std::exception& error) {
    for (const Operation& operation : operations) {
      operation.room->Fail(fmt::format("rank {} failed in {}: {}", operation.rank,
                                       operation.call.ToString(), error.what()));
    }
    throw;
  }
}

}  // namespace infini_train::parallel
