#pragma once

#include <csignal>

namespace infini_train::trainer {

/// While in scope, SIGINT and SIGTERM set a flag instead of ending the process, so that the step in
/// progress can be finished and saved. A second signal ends the process at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that arrived, 0 for none.
  static int Received();

 private:
  struct sigaction previous_int_;
  struct sigaction previous_term_;
};

}  // namespace infini_train::trainer
