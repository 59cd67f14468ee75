#include <infini/rt/last_error.h>

#include <cstddef>
#include <utility>

namespace infini::rt::runtime::detail {
namespace {

constinit thread_local Error last_errors[static_cast<std::size_t>(Device::Type::kCount)] = {};

}  // namespace

Error RecordError(Device::Type type, Error error) noexcept {
  if (error != kSuccess && error != kErrorNotReady) {
    last_errors[static_cast<std::size_t>(type)] = error;
  }
  return error;
}

Error PeekError(Device::Type type) noexcept {
  return last_errors[static_cast<std::size_t>(type)];
}

Error TakeError(Device::Type type) noexcept {
  return std::exchange(last_errors[static_cast<std::size_t>(type)], kSuccess);
}

}  // namespace infini::rt::runtime::detail
