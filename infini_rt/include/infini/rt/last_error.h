#pragma once

#include <infini/rt/device.h>
#include <infini/rt/export.h>
#include <infini/rt/types.h>

/// The last error of the calling thread, kept per backend for those whose vendor has no such call
/// or whose codes are translated.
namespace infini::rt::runtime::detail {

/// Returns `error`, and remembers it if it is a failure. Not-ready is an answer, not a failure.
INFINI_RT_API Error RecordError(Device::Type type, Error error) noexcept;

/// The remembered error.
INFINI_RT_API Error PeekError(Device::Type type) noexcept;

/// The remembered error, which is then forgotten.
INFINI_RT_API Error TakeError(Device::Type type) noexcept;

}  // namespace infini::rt::runtime::detail
