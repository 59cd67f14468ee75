#pragma once

#include <infini/rt/types.h>

namespace infini::rt::runtime::detail {

/// The enumerator's name ("kErrorInvalidValue"), or null for a number without one.
const char* ErrorName(Error error) noexcept;

/// One sentence about the error, or null for a number without a name.
const char* ErrorString(Error error) noexcept;

}  // namespace infini::rt::runtime::detail
