#include "mccl_group.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "infini_train/core/half.h"
#include "launch.h"

namespace maca_standin {
namespace {

namespace rt = infini::rt::runtime;
using infini_train::BFloat16;
using infini_train::Float16;

std::size_t SizeOf(mcclDataType_t type) {
  switch (type) {
    case mcclInt8:
    case mcclUint8:
      return 1;
    case mcclFloat16:
    case mcclBfloat16:
      return 2;
    case mcclInt32:
    case mcclUint32:
    case mcclFloat32:
      return 4;
    default:
      return 8;
  }
}

/// Sums of the half types are float's.
template <typename T>
struct Wide {
  using type = T;
};
template <>
struct Wide<Float16> {
  using type = float;
};
template <>
struct Wide<BFloat16> {
  using type = float;
};

template <typename W>
W Combine(W a, W b, mcclRedOp_t op) {
  switch (op) {
    case mcclProd:
      return static_cast<W>(a * b);
    case mcclMax:
      return std::max(a, b);
    case mcclMin:
      return std::min(a, b);
    default:
      return static_cast<W>(a + b);
  }
}

template <typename T>
void ReduceAs(const std::vector<const void*>& inputs, std::size_t offset, std::size_t count,
              mcclRedOp_t op, void* output) {
  using W = typename Wide<T>::type;
  for (std::size_t i = 0; i < count; ++i) {
    auto value = static_cast<W>(static_cast<const T*>(inputs[0])[offset + i]);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank)
      value = Combine(value, static_cast<W>(static_cast<const T*>(inputs[rank])[offset + i]), op);
    if (op == mcclAvg) value = static_cast<W>(value / static_cast<W>(inputs.size()));
    static_cast<T*>(output)[i] = static_cast<T>(value);
  }
}

void Reduce(const std::vector<const void*>& inputs, std::size_t offset, std::size_t count,
            mcclDataType_t type, mcclRedOp_t op, void* output) {
  switch (type) {
    case mcclInt8:
      return ReduceAs<std::int8_t>(inputs, offset, count, op, output);
    case mcclUint8:
      return ReduceAs<std::uint8_t>(inputs, offset, count, op, output);
    case mcclInt32:
      return ReduceAs<std::int32_t>(inputs, offset, count, op, output);
    case mcclUint32:
      return ReduceAs<std::uint32_t>(inputs, offset, count, op, output);
    case mcclInt64:
      return ReduceAs<std::int64_t>(inputs, offset, count, op, output);
    case mcclUint64:
      return ReduceAs<std::uint64_t>(inputs, offset, count, op, output);
    case mcclFloat16:
      return ReduceAs<Float16>(inputs, offset, count, op, output);
    case mcclBfloat16:
      return ReduceAs<BFloat16>(inputs, offset, count, op, output);
    case mcclFloat64:
      return ReduceAs<double>(inputs, offset, count, op, output);
    default:
      return ReduceAs<float>(inputs, offset, count, op, output);
  }
}

/// Work of one rank's stream: what it receives, from what all ranks send.
struct Work {
  std::vector<const void*> inputs;
  Call call;
  int place;
  std::shared_ptr<std::vector<std::byte>> result;

  void Run() const {
    const std::size_t bytes = call.count * SizeOf(call.type);
    const auto put = [&](std::size_t part, const void* from) {
      std::memcpy(result->data() + part * bytes, from, bytes);
    };
    switch (call.kind) {
      case CallKind::kAllReduce:
      case CallKind::kReduce:
        return Reduce(inputs, 0, call.count, call.type, call.op, result->data());
      case CallKind::kReduceScatter:
        return Reduce(inputs, static_cast<std::size_t>(place) * call.count, call.count, call.type,
                      call.op, result->data());
      case CallKind::kAllGather:
        for (std::size_t rank = 0; rank < inputs.size(); ++rank)
          put(rank, inputs[rank]);
        return;
      case CallKind::kBroadcast:
        return put(0, inputs[static_cast<std::size_t>(call.root)]);
      case CallKind::kSendRecv:
        return put(0, inputs[0]);
    }
  }
};

rt::Error RunWork(const void* arguments) {
  auto* work = *static_cast<Work* const*>(arguments);
  work->Run();
  delete work;
  return rt::kSuccess;
}

struct Delivery {
  std::shared_ptr<std::vector<std::byte>> result;
  void* to;
};

rt::Error RunDelivery(const void* arguments) {
  auto* delivery = *static_cast<Delivery* const*>(arguments);
  std::memcpy(delivery->to, delivery->result->data(), delivery->result->size());
  delete delivery;
  return rt::kSuccess;
}

mcclResult_t ToResult(mcError_t error) {
  return error == mcSuccess ? mcclSuccess : mcclUnhandledRuntimeError;
}

/// Makes a device current for a scope.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    mcGetDevice(&previous_);
    mcSetDevice(device);
  }
  ~OnDevice() { mcSetDevice(previous_); }

 private:
  int previous_ = 0;
};

}  // namespace

void Meeting::Arrive(int place, const Call& call) {
  const auto i = static_cast<std::size_t>(place);
  const OnDevice device(call.device);
  mcEventCreateWithFlags(&ready_[i], 0);
  mcEventRecord(ready_[i], call.stream);
  const std::lock_guard lock(mutex_);
  calls_[i] = call;
  ++arrived_;
  changed_.notify_all();
}

mcclResult_t Meeting::Await(int& count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return aborted_ || count == static_cast<int>(calls_.size()); });
  return aborted_ ? mcclInternalError : mcclSuccess;
}

bool Meeting::Agrees() const {
  return std::all_of(calls_.begin(), calls_.end(), [&](const Call& call) {
    const Call& first = calls_.front();
    return call.kind == first.kind && call.count == first.count && call.type == first.type &&
           call.op == first.op && call.root == first.root;
  });
}

mcclResult_t Meeting::Enqueue(int place) {
  const mcclResult_t waited = Await(arrived_);
  if (waited != mcclSuccess) return waited;
  const auto i = static_cast<std::size_t>(place);
  const Call& call = calls_[i];
  if (!Agrees()) return mcclInvalidArgument;
  const OnDevice device(call.device);
  for (const mcEvent_t event : ready_)
    mcStreamWaitEvent(call.stream, event, 0);
  mcError_t error = mcSuccess;
  if (call.recv != nullptr) {
    auto* work = new Work{{}, call, place, nullptr};
    for (const Call& other : calls_)
      work->inputs.push_back(other.send);
    const std::size_t parts = call.kind == CallKind::kAllGather ? calls_.size() : 1;
    work->result = std::make_shared<std::vector<std::byte>>(parts * call.count * SizeOf(call.type));
    {
      const std::lock_guard lock(mutex_);
      results_[place] = work->result;
    }
    error = __mcEnqueue(&RunWork, &work, sizeof(work), call.stream);
  }
  mcEventCreateWithFlags(&done_[i], 0);
  mcEventRecord(done_[i], call.stream);
  const std::lock_guard lock(mutex_);
  ++enqueued_;
  changed_.notify_all();
  return ToResult(error);
}

mcclResult_t Meeting::Finish(int place) {
  const mcclResult_t waited = Await(enqueued_);
  if (waited != mcclSuccess) return waited;
  const Call& call = calls_[static_cast<std::size_t>(place)];
  const OnDevice device(call.device);
  // What others still read is not written.
  for (const mcEvent_t event : done_)
    mcStreamWaitEvent(call.stream, event, 0);
  const std::lock_guard lock(mutex_);
  ++finished_;
  if (call.recv == nullptr) return mcclSuccess;
  auto* delivery = new Delivery{results_[place], call.recv};
  return ToResult(__mcEnqueue(&RunDelivery, &delivery, sizeof(delivery), call.stream));
}

bool Meeting::IsOver() {
  const std::lock_guard lock(mutex_);
  return finished_ == static_cast<int>(calls_.size());
}

Meeting::~Meeting() {
  for (const auto* events : {&ready_, &done_}) {
    for (const mcEvent_t event : *events) {
      if (event != nullptr) mcEventDestroy(event);
    }
  }
}

void Meeting::Abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

mcclResult_t Group::Join(int count) {
  std::unique_lock lock(mutex_);
  joined_ += count;
  changed_.notify_all();
  changed_.wait(lock, [&] { return aborted_ || joined_ >= size; });
  return aborted_ ? mcclInternalError : mcclSuccess;
}

std::shared_ptr<Meeting> Group::NextMeeting(int rank, int from, int to, bool receives) {
  const std::lock_guard lock(mutex_);
  const long number = numbers_[{rank, from, to, receives}]++;
  std::weak_ptr<Meeting>& known = meetings_[{from, to, number}];
  std::shared_ptr<Meeting> meeting = known.lock();
  if (meeting == nullptr) {
    meeting = std::make_shared<Meeting>(from < 0 ? size : 2);
    known = meeting;
    // The others find it, even if this rank has left it by then.
    kept_.push_back(meeting);
  }
  if (kept_.size() > 256) {
    std::erase_if(kept_, [](const auto& kept) { return kept->IsOver() && kept.use_count() == 1; });
    std::erase_if(meetings_, [](const auto& entry) { return entry.second.expired(); });
  }
  if (aborted_) meeting->Abort();
  return meeting;
}

void Group::Abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  for (const auto& meeting : kept_)
    meeting->Abort();
  changed_.notify_all();
}

bool Group::aborted() {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

}  // namespace maca_standin
