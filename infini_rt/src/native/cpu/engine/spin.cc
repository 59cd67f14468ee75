#include "native/cpu/engine/spin.h"

#include <atomic>
#include <chrono>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace infini::rt::cpu {
namespace {

constexpr long long kSpinNanoseconds = 20'000;
constexpr int kRoundsPerClockRead = 16;

std::atomic<int> spinners{0};

int MaxSpinners() {
  static const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return cores > 1 ? cores : 0;
}

long long Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#else
  std::this_thread::yield();
#endif
}

}  // namespace

SpinPermit::SpinPermit()
    : granted_(spinners.fetch_add(1, std::memory_order_relaxed) < MaxSpinners()) {
  if (granted_) deadline_ns_ = Now() + kSpinNanoseconds;
}

SpinPermit::~SpinPermit() {
  spinners.fetch_sub(1, std::memory_order_relaxed);
}

bool SpinPermit::Pause() {
  if (!granted_) return false;
  Relax();
  return ++rounds_ % kRoundsPerClockRead != 0 || Now() < deadline_ns_;
}

}  // namespace infini::rt::cpu
