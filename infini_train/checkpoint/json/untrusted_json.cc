#include "infini_train/checkpoint/json/untrusted_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "infini_train/core/error.h"

namespace infini_train::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxDescription = 120;

std::string Shortened(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (text.size() > kMaxDescription) text = text.substr(0, kMaxDescription) + "...";
  return text;
}

}  // namespace

nlohmann::json ParseJson(std::string_view text, const std::string& where,
                         RepeatedKeys repeated_keys) {
  std::vector<std::set<std::string>> keys;
  const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) {
      throw Error(fmt::format("{}: JSON is nested deeper than {} levels", where, kMaxDepth));
    }
    if (repeated_keys == RepeatedKeys::kLastCounts) return true;
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key &&
               !keys.back().insert(parsed.get<std::string>()).second) {
      throw Error(fmt::format("{}: name {} occurs twice", where, Describe(parsed)));
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& error) {
    // The library's messages start with an identifier in brackets.
    std::string message = error.what();
    if (const auto end = message.find("] "); message.starts_with('[') && end != message.npos) {
      message.erase(0, end + 2);
    }
    throw Error(fmt::format("{}: not JSON: {}", where, Shortened(message)));
  }
}

std::string Describe(const nlohmann::json& value) {
  return Shortened(value.dump(-1, ' ', /*ensure_ascii=*/true));
}

}  // namespace infini_train::checkpoint
