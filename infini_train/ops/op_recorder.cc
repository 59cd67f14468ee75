#include "infini_train/ops/op_recorder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "infini_train/core/error.h"
#include "infini_train/ops/profiler.h"

namespace infini_train {
namespace {

using Clock = std::chrono::steady_clock;

constinit std::atomic<bool> is_recording{false};
std::mutex active_mutex;
std::shared_ptr<OpRecorder::State> active;  // Of the step that is being recorded.

/// The calling thread's innermost recorded call.
struct Innermost {
  const OpRecorder::State* state = nullptr;
  int place = -1;
};
thread_local Innermost innermost;

bool IsTimedByEvents(Device device) {
  return !GetDeviceGuardImpl(device.type()).IsHostMemory();
}

}  // namespace

class OpRecorder::State {
 public:
  explicit State(Device device) : device_(device), by_events_(IsTimedByEvents(device)) {}

  ~State() {
    for (const Timing& timing : timings_)
      Destroy(timing);
    for (const Origin& origin : origins_)
      Destroy(origin.device, origin.event);
    for (const Step& step : steps_)
      Destroy(device_, step.end);
  }

  void BeginStep(std::int64_t number) {
    Synchronize(device_);
    const std::lock_guard lock(mutex_);
    first_origin_ = AddOrigin(device_);
    steps_.push_back({number, first_origin_, nullptr, 0.0});
  }

  void EndStep() {
    const std::lock_guard lock(mutex_);
    Step& step = steps_.back();
    if (by_events_) {
      step.end = Record(device_, CurrentStream(device_));
    } else {
      step.host_end = Now();
    }
  }

  std::size_t Begin(const KernelContext& context, OpId op, bool fell_back, int parent,
                    const OpArguments& arguments) {
    OpRecord record;
    record.op = op;
    record.device = context.device;
    record.stream = context.stream;
    record.parent = parent;
    record.fell_back = fell_back;
    record.tensors = DescribeTensors(arguments);
    record.cost = CostOf(op, arguments);
    const std::lock_guard lock(mutex_);
    record.thread = ThreadNumber();
    Timing timing{context.device, 0, nullptr, nullptr};
    if (IsTimedByEvents(context.device)) {
      timing.origin = OriginOf(context.device);
      timing.begin = Record(context.device, context.stream);
    }
    record.host_begin = Now();
    records_.push_back(std::move(record));
    timings_.push_back(timing);
    return records_.size() - 1;
  }

  void End(std::size_t place) {
    const std::lock_guard lock(mutex_);
    OpRecord& record = records_[place];
    record.host_duration = Now() - record.host_begin;
    Timing& timing = timings_[place];
    if (timing.begin != nullptr) timing.end = Record(record.device, record.stream);
  }

  OpProfile Take() {
    Synchronize(device_);
    const std::lock_guard lock(mutex_);
    OpProfile profile;
    profile.device = device_;
    for (const Step& step : steps_) {
      const Origin& origin = origins_[step.origin];
      const double duration =
          by_events_ ? Elapsed(device_, origin.event, step.end) : step.host_end - origin.host_time;
      profile.steps.push_back({step.number, origin.host_time, duration});
    }
    for (std::size_t i = 0; i < records_.size(); ++i) {
      OpRecord& record = records_[i];
      const Timing& timing = timings_[i];
      if (timing.begin == nullptr) {
        record.begin = record.host_begin;
        record.duration = record.host_duration;
      } else if (timing.end != nullptr) {
        const Origin& origin = origins_[timing.origin];
        record.begin = origin.host_time + Elapsed(record.device, origin.event, timing.begin);
        record.duration = Elapsed(record.device, timing.begin, timing.end);
      }
    }
    profile.ops = std::exchange(records_, {});
    State rest(device_);
    std::swap(rest.timings_, timings_);
    std::swap(rest.origins_, origins_);
    std::swap(rest.steps_, steps_);
    return profile;
  }

 private:
  /// A moment that both clocks know.
  struct Origin {
    Device device;
    EventHandle event = nullptr;
    double host_time = 0.0;
  };
  struct Step {
    std::int64_t number;
    std::size_t origin;
    EventHandle end;
    double host_end;
  };
  /// Of a call on a device that is timed by events.
  struct Timing {
    Device device;
    std::size_t origin;
    EventHandle begin;
    EventHandle end;
  };

  double Now() const {
    return std::chrono::duration<double, std::micro>(Clock::now() - start_).count();
  }

  static EventHandle Record(Device device, StreamHandle stream) {
    DeviceGuardImpl& impl = GetDeviceGuardImpl(device.type());
    const DeviceGuard guard(device);
    EventHandle event = impl.CreateEvent();
    impl.RecordEvent(event, stream);
    return event;
  }

  static double Elapsed(Device device, EventHandle begin, EventHandle end) {
    DeviceGuardImpl& impl = GetDeviceGuardImpl(device.type());
    const DeviceGuard guard(device);
    impl.SynchronizeEvent(end);
    return 1e3 * static_cast<double>(impl.ElapsedMilliseconds(begin, end));
  }

  static void Destroy(Device device, EventHandle event) {
    if (event != nullptr) GetDeviceGuardImpl(device.type()).DestroyEvent(event);
  }
  static void Destroy(const Timing& timing) {
    Destroy(timing.device, timing.begin);
    Destroy(timing.device, timing.end);
  }

  std::size_t AddOrigin(Device device) {
    Origin origin{device, nullptr, 0.0};
    if (IsTimedByEvents(device)) origin.event = Record(device, CurrentStream(device));
    origin.host_time = Now();
    origins_.push_back(origin);
    return origins_.size() - 1;
  }

  /// The present step's; of a device besides the step's, from its first call on.
  std::size_t OriginOf(Device device) {
    for (std::size_t i = first_origin_; i < origins_.size(); ++i) {
      if (origins_[i].device == device) return i;
    }
    return AddOrigin(device);
  }

  int ThreadNumber() {
    const auto id = std::this_thread::get_id();
    const auto found = std::find(threads_.begin(), threads_.end(), id);
    if (found == threads_.end()) {
      threads_.push_back(id);
      return static_cast<int>(threads_.size()) - 1;
    }
    return static_cast<int>(found - threads_.begin());
  }

  const Device device_;
  const bool by_events_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::vector<OpRecord> records_;
  std::vector<Timing> timings_;  // Parallel to records_.
  std::vector<Origin> origins_;
  std::vector<Step> steps_;
  std::size_t first_origin_ = 0;
  std::vector<std::thread::id> threads_;
};

OpRecorder::OpRecorder(Device device) : state_(std::make_shared<State>(device)) {}

OpRecorder::~OpRecorder() {
  const std::lock_guard lock(active_mutex);
  if (active != state_) return;
  active.reset();
  is_recording.store(false, std::memory_order_relaxed);
  detail::ChooseCalledKernels();
}

void OpRecorder::BeginStep(std::int64_t number) {
  const std::lock_guard lock(active_mutex);
  if (active != nullptr) throw Error("ops are being recorded already");
  state_->BeginStep(number);
  active = state_;
  is_recording.store(true, std::memory_order_relaxed);
  detail::ChooseCalledKernels();
}

void OpRecorder::EndStep() {
  const std::lock_guard lock(active_mutex);
  if (active != state_) throw Error("no step is being recorded");
  state_->EndStep();
  active.reset();
  is_recording.store(false, std::memory_order_relaxed);
  detail::ChooseCalledKernels();
}

OpProfile OpRecorder::Take() {
  const std::lock_guard lock(active_mutex);
  if (active == state_) throw Error("a step is still being recorded");
  return state_->Take();
}

bool IsRecordingOps() noexcept {
  return is_recording.load(std::memory_order_relaxed);
}

void detail::RecordedCall::Begin(const KernelContext& context, OpId op, bool fell_back,
                                 const OpArguments& arguments) {
  if (GetDeviceGuardImpl(context.device.type()).IsCapturing(context.stream)) return;
  std::shared_ptr<OpRecorder::State> state;
  {
    const std::lock_guard lock(active_mutex);
    state = active;
  }
  if (state == nullptr) return;
  parent_ = innermost.state == state.get() ? innermost.place : -1;
  place_ = state->Begin(context, op, fell_back, parent_, arguments);
  innermost = {state.get(), static_cast<int>(place_)};
  state_ = std::move(state);
}

void detail::RecordedCall::End() noexcept {
  innermost.place = parent_;
  try {
    state_->End(place_);
  } catch (const std::exception&) {
    // Without its second event the call has no duration; what failed says so by itself.
  }
}

}  // namespace infini_train
