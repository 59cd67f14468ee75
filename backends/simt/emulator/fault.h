#pragma once

#include <source_location>
#include <string>

namespace infini_train::simt::emulator {

/// Thrown out of a lane: what its kernel did wrong. Never leaves the emulator.
struct LaneFault {
  std::string message;
};

/// Thrown out of the lanes that were waiting when another one had a fault.
struct LaneCancelled {};

/// "softmax.cc:42", with the folder before it.
std::string ToString(const std::source_location& place);

/// `what`, with the kernel, block and lane at `place`.
std::string DescribeFault(const std::string& what, const std::source_location& place);

/// Throws the fault of the running lane at `place`.
[[noreturn]] void ThrowFault(const std::string& what, const std::source_location& place);

/// The message of this process's device fault: empty while there was none. The first one stays, as
/// the runtime's sticky error does.
std::string FaultMessage();
void KeepFault(const std::string& message);

}  // namespace infini_train::simt::emulator
