#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "infini_train/core/api.h"

/// Settings that come from the environment. A variable that is empty counts as none.
namespace infini_train {

INFINI_TRAIN_API std::optional<std::string> GetEnvironment(const char* name);

/// Throws Error naming the variable unless it is 0 or 1.
INFINI_TRAIN_API std::optional<bool> GetEnvironmentSwitch(const char* name);

/// Throws Error naming the variable unless it is an integer from `least` to `most`.
INFINI_TRAIN_API std::optional<std::int64_t> GetEnvironmentInteger(const char* name,
                                                                   std::int64_t least,
                                                                   std::int64_t most);

}  // namespace infini_train
