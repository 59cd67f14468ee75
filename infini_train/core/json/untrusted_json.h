#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

/// JSON that may be hostile, and messages about what is wrong with it.
namespace infini_train {

enum class RepeatedKeys : std::uint8_t { kLastCounts, kRefuse };

/// Throws Error, beginning with `where`, when the text is malformed or nested deeper than 64 levels
/// (what is done with a value afterwards may be recursive).
nlohmann::json ParseJson(std::string_view text, const std::string& where,
                         RepeatedKeys repeated_keys = RepeatedKeys::kLastCounts);

/// The value as one short line of ASCII, for messages; of a long array or object its size alone.
std::string DescribeJson(const nlohmann::json& value);

}  // namespace infini_train
