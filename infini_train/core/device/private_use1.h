#pragma once

#include <optional>
#include <string>

#include "infini_train/core/api.h"
#include "infini_train/core/dtype.h"

namespace infini_train::core {

/// What the framework must know of a PrivateUse1 provider before its devices are used.
struct PrivateUse1Backend {
  /// Name on the command line and in print: `[a-z0-9_]+`, at most 64 characters, not reserved
  /// (`cpu`, `cuda`, `privateuse1`, `auto`, `host`, `meta`).
  std::string name;
  /// Type that autocast computes in when none is named: bfloat16 or float16.
  std::optional<DataType> default_autocast_dtype;

  bool operator==(const PrivateUse1Backend&) const = default;
};

/// Names the process's PrivateUse1 provider. Starts no device. Registering the same metadata again
/// is harmless. Throws Error for a malformed or reserved name, a missing or unsuitable autocast
/// type, another provider, the same name with other metadata, or when a PrivateUse1 device was
/// asked for before. Thread-safe.
INFINI_TRAIN_API void RegisterPrivateUse1Backend(const PrivateUse1Backend& backend);

INFINI_TRAIN_API bool HasPrivateUse1Backend();

/// The registered metadata. Throws Error when none is registered.
INFINI_TRAIN_API PrivateUse1Backend GetPrivateUse1Backend();

namespace detail {
/// Called when a PrivateUse1 device is used: from now on no provider can take the slot. Returns
/// whether one has it.
bool ClosePrivateUse1Registration();
}  // namespace detail

}  // namespace infini_train::core
