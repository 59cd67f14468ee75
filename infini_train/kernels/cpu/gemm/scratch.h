#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace infini_train::cpu {

/// Working memory of a kernel that outlives the call: aligned to a page, grows, never shrinks.
/// Meant to be thread_local.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { std::free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// At least `count` uninitialised elements; what the last call returned is no longer valid.
  template <typename T>
  T* Get(std::size_t count) {
    const std::size_t bytes = (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    if (bytes > bytes_) {
      std::free(data_);
      bytes_ = 0;
      data_ = std::aligned_alloc(kAlignment, bytes);
      if (data_ == nullptr) throw std::bad_alloc();
      bytes_ = bytes;
    }
    return static_cast<T*>(data_);
  }

 private:
  static constexpr std::size_t kAlignment = 4096;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace infini_train::cpu
