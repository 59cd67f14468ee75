#include "native/cpu/engine/stream.h"

#include <new>

#include "native/cpu/engine/context.h"
#include "native/cpu/engine/device_state.h"
#include "native/cpu/engine/spin.h"

namespace infini::rt::cpu {

void Stream::Init(DeviceState* device, Role role, int priority) {
  device_ = device;
  role_ = role;
  priority_ = priority;
}

void Stream::Reset() {
  FreeChunks();
  capturing.store(false, std::memory_order_relaxed);
  capture.reset();
  capture_tail.clear();
  legacy_waits_until = 0;
  device_ = nullptr;
  appended_ = 0;
  waits_for_legacy_until_ = 0;
  parked_ = has_worker_ = closed_ = false;
  published_.store(0, std::memory_order_relaxed);
  completed_.store(0, std::memory_order_relaxed);
  wake_at_.store(UINT64_MAX, std::memory_order_relaxed);
}

void Stream::FreeChunks() {
  for (Chunk* chunk : spare_)
    delete chunk;
  spare_.clear();
  while (head_ != nullptr) {
    Chunk* next = head_ == tail_ ? nullptr : head_->next;
    delete head_;
    head_ = next;
  }
  tail_ = nullptr;
}

Stream::Chunk* Stream::TakeChunkLocked() {
  if (!spare_.empty()) {
    Chunk* chunk = spare_.back();
    spare_.pop_back();
    return chunk;
  }
  return new (std::nothrow) Chunk;
}

void Stream::DropChunk(Chunk* chunk) {
  {
    std::lock_guard lock(mutex_);
    if (spare_.size() < kSpareChunks) {
      spare_.push_back(chunk);
      return;
    }
  }
  delete chunk;
}

bool Stream::AppendLocked(const Op& op) {
  std::uint64_t slot = appended_ % kChunkOps;
  if (slot == 0) {
    Chunk* chunk = TakeChunkLocked();
    if (chunk == nullptr) {
      op.Release();
      return false;
    }
    if (tail_ == nullptr) {
      head_ = chunk;
    } else {
      tail_->next = chunk;
    }
    tail_ = chunk;
  }
  tail_->ops[slot] = op;
  ++appended_;
  // The worker's core owns the lines of recycled slots; fetch one ahead of its use.
  if (slot + kPrefetchDistance < kChunkOps) {
    __builtin_prefetch(&tail_->ops[slot + kPrefetchDistance], /*rw=*/1);
  }
  return true;
}

bool Stream::AppendLegacyWaitsLocked() {
  if (role_ == Role::kLegacy) {
    bool appended = true;
    device_->ForEachStream([&](Stream& other) {
      if (other.role_ != Role::kBlocking) return;
      std::uint64_t point = other.published();
      if (point <= other.legacy_waits_until || point <= other.completed()) return;
      other.legacy_waits_until = point;
      appended = AppendLocked(Op::Wait(&other, point)) && appended;
    });
    return appended;
  }
  if (role_ == Role::kBlocking) {
    Stream& legacy = device_->legacy_stream();
    std::uint64_t point = legacy.published();
    if (point > waits_for_legacy_until_ && point > legacy.completed()) {
      if (!AppendLocked(Op::Wait(&legacy, point))) return false;
    }
    waits_for_legacy_until_ = point;
  }
  return true;
}

std::uint64_t Stream::Enqueue(const Op& op) {
  std::uint64_t position = 0;
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    if (!has_worker_) {
      if (!Context::Get().workers().Serve(this)) {
        op.Release();
        return 0;
      }
      has_worker_ = true;
    }
    bool waits = AppendLegacyWaitsLocked();
    if (!waits) {
      op.Release();
    } else if (AppendLocked(op)) {
      position = appended_;
    }
    published_.store(appended_, std::memory_order_release);
    wake = parked_;
    parked_ = false;
  }
  if (wake) work_.notify_one();
  return position;
}

void Stream::Close() {
  bool drained = false;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    drained = !has_worker_;
    parked_ = false;
    // Under the lock: once it is released the worker may return the object to its first state.
    work_.notify_one();
  }
  if (drained) device_->RemoveStream(this);
  Unref();
}

void Stream::Wake() {
  std::lock_guard lock(mutex_);
  parked_ = false;
  work_.notify_one();
}

bool Stream::WaitForWork(std::uint64_t done) {
  auto more = [&] { return published() > done; };
  if (SpinUntil(more)) return true;
  std::unique_lock lock(mutex_);
  while (!more()) {
    if (closed_ || Context::Get().stopping()) return false;
    parked_ = true;
    work_.wait(lock);
  }
  parked_ = false;
  return true;
}

void Stream::Complete(std::uint64_t position) {
  completed_.store(position, std::memory_order_seq_cst);
  if (wake_at_.load(std::memory_order_seq_cst) > position) return;
  {
    std::lock_guard lock(wait_mutex_);
    wake_at_.store(UINT64_MAX, std::memory_order_relaxed);
  }
  wait_.notify_all();
}

void Stream::WaitUntil(std::uint64_t position) {
  if (SpinUntil([&] { return completed() >= position; })) return;
  std::unique_lock lock(wait_mutex_);
  for (;;) {
    // Announce first, then look: the worker stores its progress first, then looks for waiters.
    if (position < wake_at_.load(std::memory_order_relaxed)) {
      wake_at_.store(position, std::memory_order_seq_cst);
    }
    if (completed_.load(std::memory_order_seq_cst) >= position) return;
    wait_.wait(lock);
  }
}

void Stream::Run() {
  Context& context = Context::Get();
  std::uint64_t done = 0;
  Chunk* chunk = nullptr;
  while (WaitForWork(done)) {
    std::uint64_t available = published();
    while (done < available) {
      std::uint64_t slot = done % kChunkOps;
      if (slot == 0) {
        if (chunk == nullptr) {
          chunk = head_;
        } else {
          Chunk* finished = chunk;
          chunk = head_ = finished->next;
          DropChunk(finished);
        }
      }
      const Op& op = chunk->ops[slot];
      if (!context.stopping()) op.Execute();
      op.Release();
      Complete(++done);
    }
  }
  device_->RemoveStream(this);
  Unref();
}

}  // namespace infini::rt::cpu
