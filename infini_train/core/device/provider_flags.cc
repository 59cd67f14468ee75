#include "infini_train/core/device/provider_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

struct State {
  std::mutex mutex;
  std::map<std::string, ProviderFlag> flags;
};

/// Lives as long as the process: registration happens in static objects.
State& GetState() {
  static State& state = *new State;
  return state;
}

}  // namespace

void RegisterProviderFlag(const ProviderFlag& flag) {
  const bool well_formed =
      !flag.name.empty() && std::all_of(flag.name.begin(), flag.name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
      });
  if (!well_formed) {
    throw Error(fmt::format(
        "provider flag '{}' is malformed: expected characters of a-z, 0-9 and _", flag.name));
  }
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  const auto [found, added] = state.flags.emplace(flag.name, flag);
  if (!added && found->second.value != flag.value)
    throw Error(fmt::format("provider flag '{}' is registered already", flag.name));
}

std::vector<ProviderFlag> ProviderFlags() {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  std::vector<ProviderFlag> result;
  for (const auto& [name, flag] : state.flags)
    result.push_back(flag);
  return result;
}

}  // namespace infini_train
