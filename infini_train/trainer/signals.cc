#include "infini_train/trainer/signals.h"

namespace infini_train::trainer {
namespace {

volatile std::sig_atomic_t received = 0;

extern "C" void RememberSignal(int signal) {
  received = signal;
}

}  // namespace

StopSignals::StopSignals() {
  received = 0;
  struct sigaction action = {};
  action.sa_handler = &RememberSignal;
  // The default action comes back after the first signal.
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_int_);
  sigaction(SIGTERM, &action, &previous_term_);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &previous_int_, nullptr);
  sigaction(SIGTERM, &previous_term_, nullptr);
}

int StopSignals::Received() {
  return received;
}

}  // namespace infini_train::trainer
