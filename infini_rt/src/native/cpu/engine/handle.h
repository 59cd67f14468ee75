#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace infini::rt::cpu {

/// Base of the objects behind public handles. Their memory is never returned to the system but
/// reused for the same type, so that a handle that was destroyed can still be recognised as such
/// instead of being read from freed memory. The handle owns one reference; queued work owns others.
template <typename T>
class HandleObject {
 public:
  /// A fresh object with one reference and an open handle. The caller initialises the rest.
  static T* Create() {
    T* object = nullptr;
    FreeList& free_list = Free();
    {
      std::lock_guard lock(free_list.mutex);
      if (!free_list.objects.empty()) {
        object = free_list.objects.back();
        free_list.objects.pop_back();
      }
    }
    if (object == nullptr) object = new T;
    object->refs_.store(1, std::memory_order_relaxed);
    object->open_.store(true, std::memory_order_release);
    return object;
  }

  void Ref() { refs_.fetch_add(1, std::memory_order_relaxed); }

  void Unref() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    auto* self = static_cast<T*>(this);
    self->Reset();
    FreeList& free_list = Free();
    std::lock_guard lock(free_list.mutex);
    free_list.objects.push_back(self);
  }

  /// Whether the handle is valid: created and not destroyed.
  bool open() const { return open_.load(std::memory_order_acquire); }

  /// Marks the handle destroyed; false if it already was.
  bool Shut() { return open_.exchange(false, std::memory_order_acq_rel); }

 private:
  struct FreeList {
    std::mutex mutex;
    std::vector<T*> objects;
  };
  // Never destroyed: handles may be dropped by other static destructors.
  static FreeList& Free() {
    static FreeList& free_list = *new FreeList;
    return free_list;
  }

  std::atomic<std::uint32_t> refs_{0};
  std::atomic<bool> open_{false};
};

/// An owning reference to a `HandleObject`.
template <typename T>
class RefPtr {
 public:
  RefPtr() = default;
  explicit RefPtr(T* object) : object_(object) {
    if (object_) object_->Ref();
  }
  RefPtr(const RefPtr& other) : RefPtr(other.object_) {}
  RefPtr(RefPtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  RefPtr& operator=(RefPtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~RefPtr() {
    if (object_) object_->Unref();
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

}  // namespace infini::rt::cpu
