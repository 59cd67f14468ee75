#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "infini_train/core/api.h"

namespace infini_train {

/// A flag that a provider adds to every command of the programs that uses a device. Its variable
/// holds the default, and what the command line says once that is read. The provider reads it when
/// its runtime starts, on the first use of a device; a later change has no effect.
struct ProviderFlag {
  std::string name;  ///< "<provider>_<what>", without dashes
  std::string help;
  std::variant<bool*, std::int64_t*, std::string*> value;
};

/// Adds a flag; variables live as long as the process. Throws Error for a name that is malformed or
/// registered already with another variable.
INFINI_TRAIN_API void RegisterProviderFlag(const ProviderFlag& flag);

/// In the order of their names.
INFINI_TRAIN_API std::vector<ProviderFlag> ProviderFlags();

}  // namespace infini_train
