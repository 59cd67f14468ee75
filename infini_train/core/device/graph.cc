#include "infini_train/core/device/graph.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <exception>
#include <utility>

#include "infini_train/core/device/allocator.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"
#include "infini_train/core/generator.h"

namespace infini_train {
namespace {

constinit thread_local std::optional<Device> capturing;

/// Launches that may be under way at once.
constexpr std::size_t kMaxInFlight = 32;

/// The stream that captures, current on the calling thread, and what goes with that.
class CaptureScope {
 public:
  CaptureScope(Device device, DeviceGuardImpl& impl, allocator::PrivateMemory& memory)
      : memory_(memory), stream_(impl), guard_(device, stream_.handle) {
    capturing = device;
  }
  ~CaptureScope() { capturing.reset(); }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

  StreamHandle stream() const { return stream_.handle; }

 private:
  struct OwnStream {
    explicit OwnStream(DeviceGuardImpl& runtime)
        : impl(runtime), handle(runtime.CreateStream(/*priority=*/0)) {}
    ~OwnStream() { impl.DestroyStream(handle); }
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;

    DeviceGuardImpl& impl;
    const StreamHandle handle;
  };

  const allocator::PrivateMemory::Scope memory_;
  const OwnStream stream_;
  const StreamGuard guard_;
};

/// The calling thread's random state, put back at the end of a scope.
class RandomScope {
 public:
  explicit RandomScope(Generator::State state) : previous_(DefaultGenerator().state()) {
    DefaultGenerator().set_state(state);
  }
  ~RandomScope() { DefaultGenerator().set_state(previous_); }
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  const Generator::State previous_;
};

}  // namespace

class DeviceGraph::Impl {
 public:
  Impl(Device device, const std::function<void()>& body)
      : device_(device), runtime_(GetDeviceGuardImpl(device.type())), memory_(device) {
    const DeviceGuard guard(device_);
    allocator::EmptyCache(device_);
    offsets_ =
        static_cast<std::uint64_t*>(runtime_.AllocateHost(kMaxInFlight * sizeof(std::uint64_t)));
    if (offsets_ == nullptr) throw Error("out of page-locked host memory");
    try {
      Capture(body);
    } catch (...) {
      Release();
      throw;
    }
  }

  ~Impl() {
    try {
      if (launches_ > 0) runtime_.SynchronizeEvent(done_[LastSlot()]);
    } catch (const std::exception&) {
      // A failed device runs nothing any more.
    }
    Release();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Device device() const { return device_; }

  void Launch() {
    if (capturing) throw Error("a graph cannot be launched while work is captured into another");
    Generator& generator = DefaultGenerator();
    const Generator::State state = generator.state();
    if (state.seed != random_end_.seed) {
      throw Error(
          fmt::format("the graph was captured with seed {} of the random numbers, and the thread's "
                      "generator has seed {} now: capture it again",
                      random_end_.seed, state.seed));
    }
    const DeviceGuard guard(device_);
    const StreamHandle stream = CurrentStream(device_);
    const std::size_t slot = launches_ % kMaxInFlight;
    if (done_[slot] == nullptr) done_[slot] = runtime_.CreateEvent();
    runtime_.SynchronizeEvent(done_[slot]);
    if (launches_ > 0 && stream != last_stream_)
      runtime_.StreamWaitEvent(stream, done_[LastSlot()]);
    if (launches_ == 0 || state.offset != base_value_) {
      offsets_[slot] = state.offset;
      runtime_.CopyAsync(base_, &offsets_[slot], sizeof(std::uint64_t), CopyKind::kHostToDevice,
                         stream);
      base_value_ = state.offset;
    }
    runtime_.LaunchGraph(graph_, stream);
    runtime_.RecordEvent(done_[slot], stream);
    last_stream_ = stream;
    ++launches_;
    Generator::State next = random_end_;
    if (next.base == base_) {
      next.offset += state.offset;
      next.base = nullptr;
    }
    generator.set_state(next);
  }

 private:
  std::size_t LastSlot() const { return (launches_ - 1) % kMaxInFlight; }

  void Capture(const std::function<void()>& body) {
    const CaptureScope scope(device_, runtime_, memory_);
    base_ = static_cast<std::uint64_t*>(allocator::Allocate(device_, sizeof(std::uint64_t)));
    const std::uint64_t seed = DefaultGenerator().state().seed;
    const RandomScope random({.seed = seed, .offset = 0, .base = base_});
    runtime_.BeginCapture(scope.stream());
    std::exception_ptr failure;
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
    }
    try {
      graph_ = runtime_.EndCapture(scope.stream());
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
    if (failure) std::rethrow_exception(failure);
    random_end_ = DefaultGenerator().state();
    if (random_end_.seed != seed) {
      throw Error(fmt::format("it changes the seed of the random numbers from {} to {}", seed,
                              random_end_.seed));
    }
  }

  void Release() noexcept {
    for (const EventHandle event : done_) {
      if (event != nullptr) runtime_.DestroyEvent(event);
    }
    if (graph_ != nullptr) runtime_.DestroyGraph(graph_);
    runtime_.FreeHost(offsets_);
    allocator::Free(device_, base_);
  }

  const Device device_;
  DeviceGuardImpl& runtime_;
  allocator::PrivateMemory memory_;
  GraphHandle graph_ = nullptr;

  /// Where random offsets count from, on the device, and what was last written there.
  std::uint64_t* base_ = nullptr;
  std::uint64_t base_value_ = 0;
  /// The generator at the end of the capture; relative to `base_` unless `body` set its state.
  Generator::State random_end_;

  /// For each launch under way, by its number: what is copied to `base_`, and an event after it.
  std::uint64_t* offsets_ = nullptr;
  std::array<EventHandle, kMaxInFlight> done_{};
  std::size_t launches_ = 0;
  StreamHandle last_stream_ = nullptr;
};

bool DeviceGraph::IsSupported(Device device) {
  return HasDeviceGuardImpl(device.type()) && GetDeviceGuardImpl(device.type()).CanCapture();
}

std::optional<Device> DeviceGraph::Capturing() noexcept {
  return capturing;
}

DeviceGraph::DeviceGraph(Device device, const std::function<void()>& body) {
  const auto prefix = [&] {
    return fmt::format("work of {} could not be captured into a graph: ", device.ToString());
  };
  if (!IsSupported(device)) throw Error(prefix() + "this kind of device has no graphs");
  if (capturing) throw Error(prefix() + "the thread is capturing already");
  try {
    impl_ = std::make_unique<Impl>(device, body);
  } catch (const std::exception& error) {
    throw Error(prefix() + error.what());
  }
}

DeviceGraph::~DeviceGraph() = default;
DeviceGraph::DeviceGraph(DeviceGraph&&) noexcept = default;
DeviceGraph& DeviceGraph::operator=(DeviceGraph&&) noexcept = default;

void DeviceGraph::Launch() {
  impl_->Launch();
}

Device DeviceGraph::device() const {
  return impl_->device();
}

}  // namespace infini_train
