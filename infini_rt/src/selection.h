#pragma once

#include <atomic>

#include <infini/rt/device.h>

/// The backend choice as the dispatch reads it on every call.
namespace infini::rt::detail {

inline constexpr int kNoChoice = -1;

/// The calling thread's choice. Initial-exec keeps the read a plain load in a shared library.
extern constinit thread_local int thread_choice __attribute__((tls_model("initial-exec")));
extern constinit std::atomic<int> default_choice;

inline int CurrentChoice() noexcept {
  int choice = thread_choice;
  return choice != kNoChoice ? choice : default_choice.load(std::memory_order_relaxed);
}

}  // namespace infini::rt::detail

namespace infini::rt::runtime::detail {

inline bool Selected(Device::Type type) noexcept {
  return rt::detail::CurrentChoice() == static_cast<int>(type);
}

}  // namespace infini::rt::runtime::detail
