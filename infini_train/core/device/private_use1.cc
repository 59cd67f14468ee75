#include "infini_train/core/device/private_use1.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <string_view>

#include "infini_train/core/error.h"

namespace infini_train::core {
namespace {

constexpr std::size_t kMaxNameLength = 64;
constexpr std::string_view kReservedNames[] = {"cpu",  "cuda", "privateuse1",
                                               "auto", "host", "meta"};

struct State {
  std::mutex mutex;
  std::optional<PrivateUse1Backend> backend;
  bool used_before_registration = false;
};

/// Lives as long as the process: registration and printing may happen in static objects.
State& GetState() {
  static State& state = *new State;
  return state;
}

std::string Describe(const PrivateUse1Backend& backend) {
  return fmt::format("'{}' (default autocast dtype {})", backend.name,
                     ToString(*backend.default_autocast_dtype));
}

void CheckName(std::string_view name) {
  const bool well_formed = !name.empty() && name.size() <= kMaxNameLength &&
                           std::all_of(name.begin(), name.end(), [](char c) {
                             return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
                           });
  if (!well_formed) {
    std::string shown(name.substr(0, kMaxNameLength));
    // A message is one line.
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c >= 0 && c < ' '; }, '?');
    throw Error(fmt::format(
        "provider name '{}{}' is malformed: expected 1 to {} characters of a-z, 0-9 and _, got {}",
        shown, name.size() > kMaxNameLength ? "..." : "", kMaxNameLength, name.size()));
  }
  if (std::find(std::begin(kReservedNames), std::end(kReservedNames), name) !=
      std::end(kReservedNames)) {
    throw Error(fmt::format("provider name '{}' is reserved; the reserved names are {}", name,
                            fmt::join(kReservedNames, ", ")));
  }
}

void CheckAutocastType(const PrivateUse1Backend& backend) {
  if (!backend.default_autocast_dtype) {
    throw Error(
        fmt::format("provider '{}' states no default_autocast_dtype; expected bfloat16 or float16",
                    backend.name));
  }
  const DataType dtype = *backend.default_autocast_dtype;
  if (dtype != DataType::kBFloat16 && dtype != DataType::kFloat16) {
    throw Error(
        fmt::format("provider '{}' has default_autocast_dtype {}; expected bfloat16 or float16",
                    backend.name, ToString(dtype)));
  }
}

}  // namespace

void RegisterPrivateUse1Backend(const PrivateUse1Backend& backend) {
  CheckName(backend.name);
  CheckAutocastType(backend);
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  if (state.backend == backend) return;
  if (state.backend) {
    throw Error(
        fmt::format("cannot register provider {}: a process has one PrivateUse1 provider, and {} "
                    "is registered already",
                    Describe(backend), Describe(*state.backend)));
  }
  if (state.used_before_registration) {
    throw Error(fmt::format(
        "cannot register provider '{}': a PrivateUse1 device was asked for before; register the "
        "provider first",
        backend.name));
  }
  state.backend = backend;
}

bool HasPrivateUse1Backend() {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  return state.backend.has_value();
}

PrivateUse1Backend GetPrivateUse1Backend() {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  if (!state.backend) throw Error("no PrivateUse1 provider is registered");
  return *state.backend;
}

bool detail::ClosePrivateUse1Registration() {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  if (!state.backend) state.used_before_registration = true;
  return state.backend.has_value();
}

}  // namespace infini_train::core
