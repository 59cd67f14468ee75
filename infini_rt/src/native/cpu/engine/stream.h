#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "native/cpu/engine/handle.h"
#include "native/cpu/engine/op.h"

namespace infini::rt::cpu {

class CaptureSession;
class DeviceState;

/// An ordered queue of operations with a worker thread of its own.
///
/// Positions count operations from 1. `published` is the last position in the queue, `completed`
/// the last one that was carried out; a point in a stream is the pair (stream, position), which is
/// all that events, waits and stream-ordered memory need. Producers append under one mutex into
/// chunks that are recycled, so an operation costs no allocation; the worker reads up to
/// `published` without a lock and parks only after spinning for a while.
///
/// The legacy default stream works by the same means: an operation in it is preceded by waits for
/// the published points of all blocking streams, and an operation in a blocking stream by a wait
/// for the published point of the default stream. Both read the other side before they publish
/// their own position, so waits point backwards in the order of publication and cannot deadlock.
class Stream : public HandleObject<Stream> {
 public:
  enum class Role { kLegacy, kBlocking, kNonBlocking };

  Stream() = default;

  /// The stream of `device`; the caller registers it there.
  void Init(DeviceState* device, Role role, int priority);
  /// Returns the object to its first state once the last reference is gone.
  void Reset();

  DeviceState& device() const { return *device_; }
  Role role() const { return role_; }
  int priority() const { return priority_; }

  /// Appends an operation, which the queue then owns, and returns its position; 0 if memory or
  /// threads ran out, in which case the operation has been released.
  std::uint64_t Enqueue(const Op& op);

  std::uint64_t published() const { return published_.load(std::memory_order_acquire); }
  std::uint64_t completed() const { return completed_.load(std::memory_order_acquire); }
  bool Idle() const { return completed() >= published(); }

  /// Blocks until the position has been carried out.
  void WaitUntil(std::uint64_t position);

  /// No more work will come: the stream leaves its device once it has drained. Drops the handle's
  /// reference.
  void Close();

  /// The worker's loop: carries out operations until the stream is closed and drained, or the
  /// process ends.
  void Run();
  /// Makes a parked worker look again.
  void Wake();

  /// State of capture, guarded by the mutex of `capture.h`. `capturing` may be read without it.
  std::atomic<bool> capturing{false};
  std::shared_ptr<CaptureSession> capture;
  std::vector<std::uint32_t> capture_tail;

  /// Position up to which the default stream already waits for this one; guarded by the device's
  /// list of streams.
  std::uint64_t legacy_waits_until = 0;

 private:
  static constexpr std::uint64_t kChunkOps = 256;
  static constexpr std::size_t kSpareChunks = 4;
  static constexpr std::uint64_t kPrefetchDistance = 4;
  struct Chunk {
    Op ops[kChunkOps];
    Chunk* next;
  };

  bool AppendLocked(const Op& op);
  bool AppendLegacyWaitsLocked();
  Chunk* TakeChunkLocked();
  void DropChunk(Chunk* chunk);
  bool WaitForWork(std::uint64_t done);
  void Complete(std::uint64_t position);
  void FreeChunks();

  DeviceState* device_ = nullptr;
  Role role_ = Role::kBlocking;
  int priority_ = 0;

  // Producers.
  std::mutex mutex_;
  std::condition_variable work_;
  Chunk* tail_ = nullptr;
  Chunk* head_ = nullptr;
  std::vector<Chunk*> spare_;
  std::uint64_t appended_ = 0;
  std::uint64_t waits_for_legacy_until_ = 0;
  bool parked_ = false;
  bool has_worker_ = false;
  bool closed_ = false;
  // On a line of its own: the worker polls it.
  alignas(64) std::atomic<std::uint64_t> published_{0};

  // The worker and those who wait for it.
  alignas(64) std::atomic<std::uint64_t> completed_{0};
  std::atomic<std::uint64_t> wake_at_{UINT64_MAX};
  std::mutex wait_mutex_;
  std::condition_variable wait_;
};

}  // namespace infini::rt::cpu
