#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/error.h"
#include "infini_train/parallel/ccl.h"

/// The framework's collectives over a library with NCCL's functions. `Api` names them
/// (nccl_style_api.inc does for NCCL's names behind a prefix): types Comm, Id, Result and Stream;
/// the library's types and reductions for the framework's (TypeOf, OpOf); functions; kSuccess,
/// kName; and MaxAllReduceBytes(), the most that one all-reduce may move (0: any).
namespace infini_train::backend {

template <typename Api>
class NcclStyleCommunicator final : public parallel::Communicator {
 public:
  explicit NcclStyleCommunicator(typename Api::Comm comm) : comm_(comm) {}

  ~NcclStyleCommunicator() override {
    if (!aborted_) static_cast<void>(Api::CommDestroy(comm_));
  }

  void Abort(const std::string& reason) noexcept override {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    reason_ = reason;
    aborted_ = true;
    static_cast<void>(Api::CommAbort(comm_));
  }

  static void Check(typename Api::Result result, const char* call) {
    if (result != Api::kSuccess) [[unlikely]]
      throw Error(std::string(Api::kName) + " " + call + ": " + Api::GetErrorString(result));
  }

 protected:
  void EnqueueAllReduce(const void* send, void* recv, std::size_t count, DataType dtype,
                        parallel::ReduceOp op, StreamHandle stream) override {
    const std::size_t size = SizeOf(dtype);
    const std::size_t most = Api::MaxAllReduceBytes() == 0
                                 ? count
                                 : std::max<std::size_t>(Api::MaxAllReduceBytes() / size, 1);
    for (std::size_t done = 0; done < count; done += most) {
      const std::size_t offset = done * size;
      Check(Api::AllReduce(static_cast<const std::byte*>(send) + offset,
                           static_cast<std::byte*>(recv) + offset, std::min(most, count - done),
                           Api::TypeOf(dtype), Api::OpOf(op), Comm(), StreamOf(stream)),
            "AllReduce");
    }
  }

  void EnqueueReduceScatter(const void* send, void* recv, std::size_t count, DataType dtype,
                            parallel::ReduceOp op, StreamHandle stream) override {
    Check(Api::ReduceScatter(send, recv, count, Api::TypeOf(dtype), Api::OpOf(op), Comm(),
                             StreamOf(stream)),
          "ReduceScatter");
  }

  void EnqueueAllGather(const void* send, void* recv, std::size_t bytes,
                        StreamHandle stream) override {
    Check(Api::AllGather(send, recv, bytes, Bytes(), Comm(), StreamOf(stream)), "AllGather");
  }

  void EnqueueBroadcast(void* data, std::size_t bytes, int root, StreamHandle stream) override {
    Check(Api::Broadcast(data, data, bytes, Bytes(), root, Comm(), StreamOf(stream)), "Broadcast");
  }

  void EnqueueSend(const void* data, std::size_t bytes, int peer, StreamHandle stream) override {
    Check(Api::Send(data, bytes, Bytes(), peer, Comm(), StreamOf(stream)), "Send");
  }

  void EnqueueRecv(void* data, std::size_t bytes, int peer, StreamHandle stream) override {
    Check(Api::Recv(data, bytes, Bytes(), peer, Comm(), StreamOf(stream)), "Recv");
  }

  std::string AsyncError() override {
    const std::lock_guard lock(mutex_);
    if (aborted_) return reason_;
    typename Api::Result result = Api::kSuccess;
    Check(Api::CommGetAsyncError(comm_, &result), "CommGetAsyncError");
    return result == Api::kSuccess ? std::string()
                                   : std::string(Api::kName) + ": " + Api::GetErrorString(result);
  }

 private:
  static auto Bytes() { return Api::TypeOf(DataType::kUInt8); }
  static typename Api::Stream StreamOf(StreamHandle stream) {
    return static_cast<typename Api::Stream>(stream);
  }

  typename Api::Comm Comm() {
    if (aborted_) [[unlikely]] {
      const std::lock_guard lock(mutex_);
      throw Error(reason_);
    }
    return comm_;
  }

  const typename Api::Comm comm_;
  std::atomic<bool> aborted_ = false;
  std::mutex mutex_;
  std::string reason_;
};

template <typename Api>
class NcclStyleCcl : public parallel::Ccl {
 public:
  std::string Name() const override {
    int version = 0;
    Communicator::Check(Api::GetVersion(&version), "GetVersion");
    return std::string(Api::kName) + " " + std::to_string(version);
  }

  parallel::UniqueId CreateUniqueId() override {
    typename Api::Id id;
    Communicator::Check(Api::GetUniqueId(&id), "GetUniqueId");
    parallel::UniqueId bytes = {};
    static_assert(sizeof(id) <= sizeof(bytes));
    std::memcpy(bytes.data(), &id, sizeof(id));
    return bytes;
  }

 protected:
  std::unique_ptr<parallel::Communicator> MakeCommunicator(const parallel::UniqueId& id, int rank,
                                                           int size, Device device) override {
    // The library asks its runtime for the current device, which is another until it is used.
    GetDeviceGuardImpl(device.type()).SynchronizeDevice();
    typename Api::Id native;
    std::memcpy(&native, id.data(), sizeof(native));
    typename Api::Comm comm = nullptr;
    Communicator::Check(Api::CommInitRank(&comm, size, native, rank), "CommInitRank");
    return std::make_unique<Communicator>(comm);
  }

  void BeginGroup() override { Communicator::Check(Api::GroupStart(), "GroupStart"); }
  void EndGroup() override { Communicator::Check(Api::GroupEnd(), "GroupEnd"); }

 private:
  using Communicator = NcclStyleCommunicator<Api>;
};

}  // namespace infini_train::backend
