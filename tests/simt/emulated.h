#pragma once

#include <optional>
#include <string>
#include <utility>

#include "backends/simt/dialect.h"
#include "backends/simt/emulator/grid.h"
#include "backends/simt/emulator/options.h"

namespace infini_train::simt {

/// Runs a kernel on the calling thread and its helpers, without a stream. Returns its fault.
template <typename... P, typename... A>
std::optional<std::string> Emulate(const Geometry& geometry, void (*kernel)(P...),
                                   A&&... arguments) {
  return emulator::RunGrid(
      emulator::MakePacket(OpId::kCount, geometry, kernel, std::forward<A>(arguments)...));
}

/// Other options while it lives.
class OptionsGuard {
 public:
  explicit OptionsGuard(const emulator::Options& options) : old_(emulator::GetOptions()) {
    emulator::SetOptions(options);
  }
  ~OptionsGuard() { emulator::SetOptions(old_); }
  OptionsGuard(const OptionsGuard&) = delete;
  OptionsGuard& operator=(const OptionsGuard&) = delete;

 private:
  const emulator::Options old_;
};

}  // namespace infini_train::simt
