#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device.h"

namespace infini_train {

/// Work on one device, recorded once and run again and again as a whole: the host neither builds
/// tensors nor launches kernels for it any more.
///
///     DeviceGraph step(device, [&] { loss = Step(inputs); });
///     for (...) { inputs.CopyFromHost(...); step.Launch(); }
///
/// What is recorded are the kernels, fills and copies that `body` enqueues for the device, with the
/// addresses and numbers that they were given. The rest of `body` happens once, while it is
/// captured: work of the host and of other devices, what it prints, which branch it takes. It
/// cannot wait for the device or read results of its own work, nor copy from or to ordinary host
/// memory: those throw. Run it once before the capture, so that kernels are loaded, libraries have
/// chosen their algorithms, and memory that must last (optimizer states) exists.
///
/// Memory. Replays read and write the addresses of the capture.
/// - What `body` uses from outside (parameters, inputs, optimizer states) the caller keeps alive,
///   at the same address, as long as the graph lives.
/// - What `body` allocates lives in memory of the graph's own, which nothing else uses as long as
///   the graph lives: what it frees is reused by later work of the same capture alone, and
///   EmptyCache leaves it alone. Tensors that `body` leaves behind (a loss, gradients) have no
///   values before the first Launch, and new ones after each; autograd does not count those writes.
///   They may outlive the graph.
/// - Memory from outside that `body` frees (the gradients of an earlier step) stays out of use as
///   long as the graph lives.
///
/// Random numbers. In `body`, DefaultGenerator() gives states that are relative to an offset on the
/// device (Generator::State::base). Launch sets it to the offset of the calling thread's generator,
/// in order of the stream, and moves the generator on: a replay draws the numbers that `body` would
/// draw if it were called in place of it, recomputation (Checkpoint) included. The seed is part of
/// the graph. Random ops that `body` gives a generator of its own draw the same numbers in each
/// replay.
///
/// Not for use by two threads at once. Different graphs are independent; different threads may
/// capture and launch them at the same time.
class INFINI_TRAIN_API DeviceGraph {
 public:
  /// Whether the kind of device can capture work. The CPU cannot.
  static bool IsSupported(Device device);

  /// The device whose work the calling thread is capturing; nothing outside a capture.
  static std::optional<Device> Capturing() noexcept;

  /// Captures what `body` enqueues on the calling thread, without running it. Gives the unused
  /// memory that the allocator of the device holds back first, since the graph cannot use it.
  /// Throws Error, which says what could not be captured, where the device has no graphs, `body`
  /// throws or a call inside it cannot be captured. Streams, generator and memory are then as they
  /// were before; what `body` did on the host stays done, and tensors that it made hold no values.
  DeviceGraph(Device device, const std::function<void()>& body);

  /// Waits for the last replay. Gives the graph's memory back, but for what tensors still use: that
  /// becomes ordinary memory of the stream that was current when the graph was captured.
  ~DeviceGraph();
  DeviceGraph(DeviceGraph&&) noexcept;
  DeviceGraph& operator=(DeviceGraph&&) noexcept;

  /// Enqueues the work on the calling thread's current stream of the device, after earlier launches
  /// on other streams. Waits only for the replay that is 32 launches ago. Throws Error when it is
  /// called inside a capture, or when the seed of the thread's generator is not that of the
  /// capture.
  void Launch();

  Device device() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace infini_train
