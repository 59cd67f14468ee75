#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/op_cost.h"

namespace infini_train {

/// One call of an op. Times are microseconds since the recorder was made.
struct OpRecord {
  OpId op = OpId::kCount;
  Device device;
  StreamHandle stream = nullptr;
  int parent = -1;         ///< place of the call that made this one; -1: none
  bool fell_back = false;  ///< the device has no kernel: the CPU's ran on copies
  std::string tensors;     ///< DescribeTensors
  OpCost cost;
  int thread = 0;      ///< counted from 0 in order of first calls
  double begin = 0.0;  ///< of its work on the device
  double duration = 0.0;
  double host_begin = 0.0;  ///< of the call
  double host_duration = 0.0;
};

struct StepRecord {
  std::int64_t number = 0;
  double begin = 0.0;  ///< on the device, in microseconds as in OpRecord
  double duration = 0.0;
};

struct OpProfile {
  Device device;
  std::vector<StepRecord> steps;
  std::vector<OpRecord> ops;  ///< in order of the calls
};

/// Times every op between BeginStep and EndStep, on all threads: on the CPU by its clock, on other
/// devices by events before and after on the op's stream. An event costs about a microsecond, and
/// work that the device waits for counts as the op's that it waits in. Calls that go into a graph
/// that is being captured, and replays, are not seen. Outside of steps calls go straight to the
/// kernels.
class INFINI_TRAIN_API OpRecorder {
 public:
  /// Steps are timed on the calling thread's current stream of `device`.
  explicit OpRecorder(Device device);
  ~OpRecorder();
  OpRecorder(const OpRecorder&) = delete;
  OpRecorder& operator=(const OpRecorder&) = delete;

  /// Waits for the device first, so that the clocks of host and device agree. Throws Error inside
  /// a step, also of another recorder.
  void BeginStep(std::int64_t number);
  void EndStep();
  /// Waits for the device and takes what was recorded so far out.
  OpProfile Take();

  class State;

 private:
  std::shared_ptr<State> state_;
};

/// Whether calls are being recorded: inside a step of an OpRecorder.
INFINI_TRAIN_API bool IsRecordingOps() noexcept;

namespace detail {

/// Records the kernel call of its scope, where calls are recorded.
class RecordedCall {
 public:
  template <typename... Arguments>
  RecordedCall(const KernelContext& context, OpId op, bool fell_back,
               const Arguments&... arguments) {
    if (IsRecordingOps()) Begin(context, op, fell_back, CollectArguments(arguments...));
  }
  ~RecordedCall() {
    if (state_ != nullptr) End();
  }
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;

 private:
  void Begin(const KernelContext& context, OpId op, bool fell_back, const OpArguments& arguments);
  void End() noexcept;

  std::shared_ptr<OpRecorder::State> state_;
  std::size_t place_ = 0;
  int parent_ = -1;
};

}  // namespace detail
}  // namespace infini_train
