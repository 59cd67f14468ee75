#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <set>
#include <utility>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/storage.h"
#include "infini_train/parallel/ccl.h"
#include "infini_train/parallel/ccl/call_checker.h"
#include "infini_train/parallel/ccl/collective_call.h"

namespace infini_train::parallel {
namespace {

/// The open CclGroup scopes of the calling thread.
struct OpenGroup {
  Ccl* ccl = nullptr;
  int depth = 0;
  std::set<Communicator*> members;  ///< who has made calls
  std::vector<Tensor> tensors;      ///< of these calls, which are enqueued at the end
  bool failed = false;              ///< an exception has left a scope
};
thread_local OpenGroup open_group;

void CheckTensor(const Tensor& tensor, Device device) {
  if (!tensor.defined()) throw Error("expected a tensor, got an undefined one");
  if (!(tensor.device() == device)) {
    throw Error(fmt::format("expected a tensor on {}, got one on {}", device.ToString(),
                            tensor.device().ToString()));
  }
  if (!tensor.IsContiguous()) {
    throw Error(fmt::format("expected a contiguous tensor, got shape {} with strides {}",
                            tensor.shape().ToString(), tensor.strides().ToString()));
  }
}

/// Throws Error unless `large` has `factor` times the elements of `small`.
void CheckNumel(const Tensor& input, const Tensor& output, const Tensor& large, const Tensor& small,
                int factor) {
  if (large.numel() % factor == 0 && large.numel() / factor == small.numel()) return;
  throw Error(fmt::format("expected the {} to have {} times the elements of the {}, got {} and {}",
                          &large == &output ? "output" : "input", factor,
                          &large == &output ? "input" : "output", output.shape().ToString(),
                          input.shape().ToString()));
}

void CheckRank(int rank, int size) {
  if (rank < 0 || rank >= size)
    throw Error(fmt::format("expected a rank from 0 to {}, got {}", size - 1, rank));
}

/// What a provider reduces: bool is 0 and 1 in a byte, whose largest is "or".
struct Reduction {
  Reduction(DataType of, ReduceOp with) : dtype(of), op(with) {
    if (dtype != DataType::kBool) return;
    dtype = DataType::kUInt8;
    if (op == ReduceOp::kSum) op = ReduceOp::kMax;
    if (op == ReduceOp::kProduct) op = ReduceOp::kMin;
  }
  DataType dtype;
  ReduceOp op;
};

std::size_t Count(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel());
}

}  // namespace

Communicator::Communicator() = default;
Communicator::~Communicator() = default;

template <typename Enqueue>
void Communicator::Run(CollectiveCall call, const Tensor& input, const Tensor& output,
                       Stream stream, const Enqueue& enqueue) {
  try {
    CheckTensor(input, device_);
    CheckTensor(output, device_);
    call.dtype = input.dtype();
    call.shape = input.shape();
    Check(call, input, output);
    const DeviceGuard guard(device_);
    const StreamHandle current = CurrentStream(device_);
    const StreamHandle used = stream.value_or(current);
    if (used != current) {
      input.storage()->RecordStream(used);
      output.storage()->RecordStream(used);
    }
    if (checker_) checker_->Post(call);
    if (open_group.depth > 0) {
      open_group.members.insert(this);
      open_group.tensors.insert(open_group.tensors.end(), {input, output});
    } else if (checker_) {
      checker_->Await();
    }
    if (output.numel() > 0) enqueue(input.raw_data(), output.raw_data(), used);
    if (call.kind != Collective::kSend) output.BumpVersion();
  } catch (const std::exception& error) {
    throw Error(fmt::format("rank {} of {} on {}: {}: {}", rank_, size_, device_.ToString(),
                            call.ToString(), error.what()));
  }
}

void Communicator::Check(const CollectiveCall& call, const Tensor& input,
                         const Tensor& output) const {
  if (input.dtype() != output.dtype()) {
    throw Error(fmt::format("expected an output of {}, got {}", infini_train::ToString(call.dtype),
                            infini_train::ToString(output.dtype())));
  }
  CheckRank(call.root, size_);
  if (call.kind == Collective::kAllGather) {
    CheckNumel(input, output, output, input, size_);
  } else if (call.kind == Collective::kReduceScatter) {
    CheckNumel(input, output, input, output, size_);
  } else if (!(input.shape() == output.shape())) {
    throw Error(fmt::format("expected an output of shape {}, got {}", input.shape().ToString(),
                            output.shape().ToString()));
  }
  if (call.kind == Collective::kAllToAll && input.numel() % size_ != 0) {
    throw Error(fmt::format("expected {} equal parts, got {} elements", size_, input.numel()));
  }
  if (Reduces(call.kind) && call.op == ReduceOp::kAverage && !IsFloatingPoint(call.dtype)) {
    throw Error(fmt::format("expected a floating type to average, got {}",
                            infini_train::ToString(call.dtype)));
  }
}

void Communicator::AllReduce(const Tensor& tensor, ReduceOp op, Stream stream) {
  AllReduce(tensor, tensor, op, stream);
}

void Communicator::AllReduce(const Tensor& input, const Tensor& output, ReduceOp op,
                             Stream stream) {
  Run({.kind = Collective::kAllReduce, .op = op}, input, output, stream,
      [&](const void* send, void* recv, StreamHandle used) {
        const Reduction reduction(input.dtype(), op);
        EnqueueAllReduce(send, recv, Count(input), reduction.dtype, reduction.op, used);
      });
}

void Communicator::AllGather(const Tensor& input, const Tensor& output, Stream stream) {
  Run({.kind = Collective::kAllGather}, input, output, stream,
      [&](const void* send, void* recv, StreamHandle used) {
        EnqueueAllGather(send, recv, input.nbytes(), used);
      });
}

void Communicator::ReduceScatter(const Tensor& input, const Tensor& output, ReduceOp op,
                                 Stream stream) {
  Run({.kind = Collective::kReduceScatter, .op = op}, input, output, stream,
      [&](const void* send, void* recv, StreamHandle used) {
        const Reduction reduction(input.dtype(), op);
        EnqueueReduceScatter(send, recv, Count(output), reduction.dtype, reduction.op, used);
      });
}

void Communicator::Broadcast(const Tensor& tensor, int root, Stream stream) {
  Run({.kind = Collective::kBroadcast, .root = root}, tensor, tensor, stream,
      [&](const void*, void* data, StreamHandle used) {
        EnqueueBroadcast(data, tensor.nbytes(), root, used);
      });
}

void Communicator::Send(const Tensor& tensor, int peer, Stream stream) {
  Run({.kind = Collective::kSend, .root = peer}, tensor, tensor, stream,
      [&](const void* data, void*, StreamHandle used) {
        EnqueueSend(data, tensor.nbytes(), peer, used);
      });
}

void Communicator::Recv(const Tensor& tensor, int peer, Stream stream) {
  Run({.kind = Collective::kRecv, .root = peer}, tensor, tensor, stream,
      [&](const void*, void* data, StreamHandle used) {
        EnqueueRecv(data, tensor.nbytes(), peer, used);
      });
}

void Communicator::AllToAll(const Tensor& input, const Tensor& output, Stream stream) {
  Run({.kind = Collective::kAllToAll}, input, output, stream,
      [&](const void* send, void* recv, StreamHandle used) {
        EnqueueAllToAll(send, recv, input.nbytes() / static_cast<std::size_t>(size_), used);
      });
}

void Communicator::EnqueueAllToAll(const void* send, void* recv, std::size_t bytes,
                                   StreamHandle stream) {
  CclGroup group(*ccl_);
  for (int peer = 0; peer < size_; ++peer) {
    const std::size_t offset = static_cast<std::size_t>(peer) * bytes;
    EnqueueSend(static_cast<const std::byte*>(send) + offset, bytes, peer, stream);
    EnqueueRecv(static_cast<std::byte*>(recv) + offset, bytes, peer, stream);
  }
  group.End();
}

void Communicator::Barrier(Stream stream) {
  if (open_group.depth > 0) throw Error("a barrier waits, and cannot be part of a group");
  const DeviceGuard guard(device_);
  const StreamHandle used = stream.value_or(CurrentStream(device_));
  DeviceGuardImpl& runtime = GetDeviceGuardImpl(device_.type());
  const Tensor token = Tensor::Empty({1}, DataType::kUInt8, device_);
  runtime.FillBytesAsync(token.raw_data(), 0, token.nbytes(), CurrentStream(device_));
  runtime.SynchronizeStream(CurrentStream(device_));
  AllReduce(token, ReduceOp::kMax, used);
  runtime.SynchronizeStream(used);
  CheckErrors();
}

std::unique_ptr<Communicator> Communicator::Split(int color, int key) {
  if (open_group.depth > 0) throw Error("a split waits, and cannot be part of a group");
  // Everybody's color and key.
  const Tensor own = Tensor::Empty({2}, DataType::kInt32, device_);
  const Tensor all = Tensor::Empty({size_, 2}, DataType::kInt32, device_);
  const std::int32_t values[2] = {color, key};
  own.CopyFromHost(values, sizeof(values));
  AllGather(own, all);
  const std::vector<std::int32_t> choices = all.ToVector<std::int32_t>();
  CheckErrors();
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int rank = 0; rank < size_; ++rank) {
    const std::size_t at = 2 * static_cast<std::size_t>(rank);
    if (choices[at] == color) members.emplace_back(choices[at + 1], rank);
  }
  std::sort(members.begin(), members.end());

  // Of each new group the first rank makes the name.
  UniqueId id{};
  const bool is_first = color >= 0 && members.front().second == rank_;
  if (is_first) id = ccl_->CreateUniqueId();
  const auto id_size = static_cast<std::int64_t>(id.size());
  const Tensor own_id = Tensor::Empty({id_size}, DataType::kUInt8, device_);
  const Tensor ids = Tensor::Empty({size_, id_size}, DataType::kUInt8, device_);
  own_id.CopyFromHost(id.data(), id.size());
  AllGather(own_id, ids);
  const std::vector<std::uint8_t> bytes = ids.ToVector<std::uint8_t>();
  CheckErrors();
  if (color < 0) return nullptr;
  std::memcpy(id.data(), &bytes[static_cast<std::size_t>(members.front().second) * id.size()],
              id.size());
  const auto self = std::find(members.begin(), members.end(), std::pair(key, rank_));
  return ccl_->CreateCommunicator(id, static_cast<int>(self - members.begin()),
                                  static_cast<int>(members.size()), device_);
}

void Communicator::Stop(const std::string& reason) noexcept {
  if (checker_) checker_->Stop(reason);
  Abort(reason);
}

void Communicator::CheckErrors() {
  const std::string error = AsyncError();
  if (!error.empty())
    throw Error(fmt::format("rank {} of {} on {}: {}", rank_, size_, device_.ToString(), error));
}

Ccl::~Ccl() = default;

std::unique_ptr<Communicator> Ccl::CreateCommunicator(const UniqueId& id, int rank, int size,
                                                      Device device) {
  if (size < 1)
    throw Error(fmt::format("expected at least 1 rank of a communicator, got {}", size));
  CheckRank(rank, size);
  const DeviceGuard guard(device);
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<CallChecker> checker;
  try {
    // Before the ranks wait for each other: who is in the room then is in the room of all, however
    // early one of them fails and leaves.
    checker = CallChecker::Create(id, rank, size);
    communicator = MakeCommunicator(id, rank, size, device);
  } catch (const std::exception& error) {
    throw Error(
        fmt::format("rank {} of {} on {}: {}", rank, size, device.ToString(), error.what()));
  }
  communicator->ccl_ = this;
  communicator->rank_ = rank;
  communicator->size_ = size;
  communicator->device_ = device;
  communicator->checker_ = std::move(checker);
  return communicator;
}

CclGroup::CclGroup(Ccl& ccl) : ccl_(&ccl), exceptions_(std::uncaught_exceptions()) {
  if (open_group.depth > 0 && open_group.ccl != ccl_)
    throw Error("a group of collectives is open for another kind of device");
  if (open_group.depth == 0) ccl.BeginGroup();
  open_group.ccl = ccl_;
  ++open_group.depth;
}

CclGroup::~CclGroup() {
  if (ccl_ == nullptr) return;
  // The other ranks would wait for the calls that are not made.
  if (std::uncaught_exceptions() > exceptions_) open_group.failed = true;
  try {
    End();
  } catch (const std::exception&) {
    // The communicators know.
  }
}

void CclGroup::End() {
  if (ccl_ == nullptr) return;
  Ccl* ccl = std::exchange(ccl_, nullptr);
  if (--open_group.depth > 0) return;
  const OpenGroup group = std::exchange(open_group, {});
  try {
    if (group.failed) throw Error("an exception left this group of collectives");
    for (Communicator* member : group.members) {
      if (member->checker_) member->checker_->Await();
    }
  } catch (const std::exception& error) {
    // The other ranks do not make these calls. Those that compare theirs are told first, as the
    // end of a library's group may wait for them; and a library's group ends before its
    // communicators do.
    const auto reason = [&](const Communicator* member) {
      return group.failed
                 ? fmt::format("rank {} failed while its group of calls was open", member->rank())
                 : error.what();
    };
    for (Communicator* member : group.members) {
      if (member->checker_) member->checker_->Stop(reason(member));
    }
    try {
      ccl->AbandonGroup();
    } catch (const std::exception&) {
      // The communicators are stopped all the same.
    }
    for (Communicator* member : group.members)
      member->Abort(reason(member));
    throw;
  }
  ccl->EndGroup();
}

}  // namespace infini_train::parallel
