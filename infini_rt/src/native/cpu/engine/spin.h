#pragma once

namespace infini::rt::cpu {

/// Runs `ready` again and again for some 20 microseconds, which is what waking a parked thread
/// costs; true as soon as it is. Does not spin where that would steal the processor from the thread
/// that is waited for: on one core, or with enough threads spinning already.
class SpinPermit {
 public:
  SpinPermit();
  ~SpinPermit();
  SpinPermit(const SpinPermit&) = delete;
  SpinPermit& operator=(const SpinPermit&) = delete;

  /// Pauses briefly; false once the time is used up or if there was no permit.
  bool Pause();

 private:
  bool granted_;
  int rounds_ = 0;
  long long deadline_ns_ = 0;
};

template <typename Ready>
bool SpinUntil(Ready ready) {
  if (ready()) return true;
  SpinPermit permit;
  while (permit.Pause()) {
    if (ready()) return true;
  }
  return ready();
}

}  // namespace infini::rt::cpu
