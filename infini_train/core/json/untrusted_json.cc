#include "infini_train/core/json/untrusted_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "infini_train/core/error.h"

namespace infini_train {
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

/// Whether brackets are open within each other deeper than is allowed, up to where the text is
/// malformed.
bool IsTooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

Json ParseUniqueKeys(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> keys;
  return Json::parse(text, [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key &&
               !keys.back().insert(parsed.get<std::string>()).second) {
      throw Error(fmt::format("{}: name {} occurs twice", where, DescribeJson(parsed)));
    }
    return true;
  });
}

}  // namespace

nlohmann::json ParseJson(std::string_view text, const std::string& where,
                         RepeatedKeys repeated_keys) {
  if (IsTooDeep(text)) {
    throw Error(fmt::format("{}: JSON is nested deeper than {} levels", where, kMaxDepth));
  }
  try {
    return repeated_keys == RepeatedKeys::kRefuse ? ParseUniqueKeys(text, where)
                                                  : Json::parse(text);
  } catch (const Json::exception& error) {
    // The library's messages start with an identifier in brackets.
    std::string message = error.what();
    if (const auto end = message.find("] "); message.starts_with('[') && end != message.npos) {
      message.erase(0, end + 2);
    }
    throw Error(fmt::format("{}: not JSON: {}", where, Shortened(message)));
  }
}

std::string DescribeJson(const nlohmann::json& value) {
  std::string text;
  if (value.size() <= kMaxDescription)
    text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  const bool is_long = text.empty() || text.size() > kMaxDescription;
  if (is_long && value.is_array()) return fmt::format("an array of {}", value.size());
  if (is_long && value.is_object()) return fmt::format("an object of {}", value.size());
  return Shortened(std::move(text));
}

}  // namespace infini_train
