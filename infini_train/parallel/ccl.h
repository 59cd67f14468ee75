#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"

/// Collectives: what a provider implements (Ccl and the protected functions of Communicator) and
/// what everybody else calls (the public ones).
namespace infini_train::parallel {

class Ccl;
class CallChecker;
struct CollectiveCall;

/// How elements of the ranks become one. For bool, sum and max are "or", product and min are "and".
enum class ReduceOp : std::uint8_t {
  kSum,
  kProduct,
  kMin,
  kMax,
  kAverage,  ///< the sum over the number of ranks; floating types only
};
/// "sum", "product", "min", "max" or "average".
INFINI_TRAIN_API std::string_view ToString(ReduceOp op);

/// Names a communicator that is being made; travels between ranks as bytes.
using UniqueId = std::array<std::byte, 128>;

/// One rank's membership of a group of ranks, each with its device of one kind. All ranks of the
/// group make the same calls in the same order, with the same dtypes, shapes and parameters; for
/// one thread at a time. INFINI_TRAIN_CCL_CHECK=1 compares the calls of ranks that are threads of
/// this process before they are made: what does not match, or does not come within
/// INFINI_TRAIN_CCL_TIMEOUT seconds (default 600), is an Error that names the calls and ranks.
///
/// Tensors are contiguous and on the communicator's device, of any dtype. Calls are asynchronous:
/// they enqueue work on `stream`, by default the calling thread's current stream of the device.
/// They may wait for the other ranks to make the same call, never for work of the device. The
/// memory may be used in order of that stream; on another stream than the current one, it is not
/// reused before the work is done. Sums of the half types are rounded once, from float32, in
/// process; libraries of vendors may round in between.
///
/// All throw Error that names the rank, the call, its shapes and dtypes, for arguments that do not
/// fit and for what the provider reports.
class INFINI_TRAIN_API Communicator {
 public:
  using Stream = std::optional<StreamHandle>;

  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  Device device() const { return device_; }
  Ccl& ccl() const { return *ccl_; }

  /// `tensor` becomes the reduction over all ranks.
  void AllReduce(const Tensor& tensor, ReduceOp op = ReduceOp::kSum, Stream stream = {});
  /// The same into `output`, of input's shape. They are the same memory or apart.
  void AllReduce(const Tensor& input, const Tensor& output, ReduceOp op = ReduceOp::kSum,
                 Stream stream = {});
  /// The inputs of rank 0, 1, ... one after the other; output has size() times as many elements.
  /// `input` may be this rank's part of `output`.
  void AllGather(const Tensor& input, const Tensor& output, Stream stream = {});
  /// This rank's part of the reduction; input has size() times as many elements. `output` may be
  /// this rank's part of `input`.
  void ReduceScatter(const Tensor& input, const Tensor& output, ReduceOp op = ReduceOp::kSum,
                     Stream stream = {});
  /// `tensor` becomes that of rank `root`.
  void Broadcast(const Tensor& tensor, int root, Stream stream = {});
  /// To one rank, which calls Recv at the same time. What several ranks send each other in a circle
  /// belongs into a group.
  void Send(const Tensor& tensor, int peer, Stream stream = {});
  void Recv(const Tensor& tensor, int peer, Stream stream = {});
  /// Part i of `input` goes to rank i, as part rank() of its `output`; both have size() equal parts
  /// and do not overlap.
  void AllToAll(const Tensor& input, const Tensor& output, Stream stream = {});
  /// Returns when all ranks have called it and the work before it on their streams is done.
  void Barrier(Stream stream = {});

  /// A communicator of the ranks that give the same `color`, in order of `key`, then of rank; null
  /// for a negative color. Waits for the other ranks, and for the device.
  std::unique_ptr<Communicator> Split(int color, int key);

  /// Throws Error when a call failed after it had returned, or the communicator was stopped. To be
  /// called after waiting for the stream, before results are used.
  void CheckErrors();
  /// Ends all present and future calls of this communicator, and those of other ranks as far as the
  /// provider reaches them, with an Error that contains `reason`. From any thread.
  void Stop(const std::string& reason) noexcept;

 protected:
  Communicator();

  // What a provider implements. Arguments are checked and devices current; sizes are not 0, `send`
  // and `recv` may be the same memory as the public functions say. What is thrown gets the call's
  // description in front.

  /// `count` elements; dtype is never kBool. A library without a type throws Error, which names it.
  virtual void EnqueueAllReduce(const void* send, void* recv, std::size_t count, DataType dtype,
                                ReduceOp op, StreamHandle stream) = 0;
  /// `count` elements of the output.
  virtual void EnqueueReduceScatter(const void* send, void* recv, std::size_t count, DataType dtype,
                                    ReduceOp op, StreamHandle stream) = 0;
  // Data that only moves is bytes. `bytes`: of one rank.
  virtual void EnqueueAllGather(const void* send, void* recv, std::size_t bytes,
                                StreamHandle stream) = 0;
  virtual void EnqueueBroadcast(void* data, std::size_t bytes, int root, StreamHandle stream) = 0;
  virtual void EnqueueSend(const void* data, std::size_t bytes, int peer, StreamHandle stream) = 0;
  virtual void EnqueueRecv(void* data, std::size_t bytes, int peer, StreamHandle stream) = 0;
  /// Optional: by default a group of sends and receives, the rank's own part included. `bytes`: of
  /// a part.
  virtual void EnqueueAllToAll(const void* send, void* recv, std::size_t bytes,
                               StreamHandle stream);
  /// Ends all present and future calls of this rank at least: see Stop.
  virtual void Abort(const std::string& reason) noexcept = 0;
  /// Optional: what went wrong after a call had returned; empty for nothing.
  virtual std::string AsyncError() { return {}; }

 private:
  friend class Ccl;
  friend class CclGroup;

  void Check(const CollectiveCall& call, const Tensor& input, const Tensor& output) const;
  template <typename Enqueue>
  void Run(CollectiveCall call, const Tensor& input, const Tensor& output, Stream stream,
           const Enqueue& enqueue);

  Ccl* ccl_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
  Device device_;
  std::unique_ptr<CallChecker> checker_;
};

/// The collectives of a kind of device. Registered with REGISTER_CCL at file scope, constructed on
/// first use, once per process. For use by many threads at once.
class INFINI_TRAIN_API Ccl {
 public:
  virtual ~Ccl();

  /// For print: the library and its version.
  virtual std::string Name() const = 0;
  /// Optional: whether calls can be captured into a graph of the device, each rank's into its own.
  virtual bool CanCapture() const noexcept { return false; }
  virtual UniqueId CreateUniqueId() = 0;

  /// Makes rank `rank` of `size` of the group that `id` names. All ranks call it, from threads of
  /// their own, and wait for each other. Throws Error for a rank outside the group.
  std::unique_ptr<Communicator> CreateCommunicator(const UniqueId& id, int rank, int size,
                                                   Device device);

 protected:
  /// The device is current; the result's rank, size and device are set by the caller.
  virtual std::unique_ptr<Communicator> MakeCommunicator(const UniqueId& id, int rank, int size,
                                                         Device device) = 0;
  /// The calls of the calling thread between these two, of all communicators, start together.
  virtual void BeginGroup() = 0;
  virtual void EndGroup() = 0;
  /// Optional: instead of EndGroup where a call of the group went wrong, before the communicators
  /// that made calls in it are stopped. The calls need not start.
  virtual void AbandonGroup() { EndGroup(); }

 private:
  friend class CclGroup;
};

/// Makes the calling thread's calls in a scope start together: none of them waits for another, in
/// whatever order the ranks make them. Scopes nest; the outermost counts.
class INFINI_TRAIN_API CclGroup {
 public:
  explicit CclGroup(Ccl& ccl);
  explicit CclGroup(const Communicator& communicator) : CclGroup(communicator.ccl()) {}
  /// End(), unless it was called; what it throws goes to CheckErrors. Where an exception leaves a
  /// scope, the end of the outermost stops the communicators that made calls in it.
  ~CclGroup();
  CclGroup(const CclGroup&) = delete;
  CclGroup& operator=(const CclGroup&) = delete;

  /// Starts the calls. Throws Error as they would.
  void End();

 private:
  Ccl* ccl_;
  int exceptions_;
};

/// The collectives that are registered for a kind of device; where there are none, those of threads
/// of this process (in_process_ccl.h).
INFINI_TRAIN_API Ccl& GetCcl(DeviceType type);
/// Whether a provider registered its own.
INFINI_TRAIN_API bool HasCcl(DeviceType type) noexcept;

namespace detail {

using CclFactory = std::unique_ptr<Ccl> (*)();

/// Throws (at program start: ends the program with the message) on a second one for a kind.
struct INFINI_TRAIN_API CclRegistrar {
  CclRegistrar(DeviceType type, CclFactory factory, const char* file, int line);
};

template <typename Impl>
std::unique_ptr<Ccl> MakeCcl() {
  static_assert(std::is_base_of_v<Ccl, Impl>, "collectives are a class derived from Ccl");
  return std::unique_ptr<Ccl>(new Impl);
}

}  // namespace detail

/// REGISTER_CCL(kPrivateUse1, Impl) at file scope, for a default-constructible Ccl.
#define REGISTER_CCL(kind, Impl)                                                                   \
  static const ::infini_train::parallel::detail::CclRegistrar infini_train_ccl_##kind##_registrar( \
      ::infini_train::DeviceType::kind, &::infini_train::parallel::detail::MakeCcl<Impl>,          \
      __FILE__, __LINE__)

}  // namespace infini_train::parallel
