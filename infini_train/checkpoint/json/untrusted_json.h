#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace infini_train::checkpoint {

enum class RepeatedKeys : std::uint8_t { kLastCounts, kRefuse };

/// Parses JSON that may be hostile. Throws Error, beginning with `where`, when it is malformed or
/// nested deeper than 64 levels (what is done with a value afterwards may be recursive).
nlohmann::json ParseJson(std::string_view text, const std::string& where,
                         RepeatedKeys repeated_keys = RepeatedKeys::kLastCounts);

/// The value as one short line of ASCII, for messages.
std::string Describe(const nlohmann::json& value);

}  // namespace infini_train::checkpoint
