#include "infini_train/core/json/untrusted_json.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
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

/// Throws Error at the first key that an object has twice. The library's own way to look at keys, a
/// callback of its parser, searches all members of an object after each that is an object.
class UniqueKeys final : public nlohmann::json_sax<Json> {
 public:
  explicit UniqueKeys(const std::string& where) : where_(where) {}

  bool start_object(std::size_t) override {
    objects_.emplace_back();
    return true;
  }
  bool key(std::string& name) override {
    if (objects_.back().insert(name).second) return true;
    throw Error(fmt::format("{}: name {} occurs twice", where_, DescribeJson(name)));
  }
  bool end_object() override {
    objects_.pop_back();
    return true;
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  /// What is malformed is said by who reads the values.
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    return false;
  }

 private:
  const std::string& where_;
  std::vector<std::unordered_set<std::string>> objects_;  ///< those that are open
};

}  // namespace

nlohmann::json ParseJson(std::string_view text, const std::string& where,
                         RepeatedKeys repeated_keys) {
  if (IsTooDeep(text)) {
    throw Error(fmt::format("{}: JSON is nested deeper than {} levels", where, kMaxDepth));
  }
  try {
    if (repeated_keys == RepeatedKeys::kRefuse) {
      UniqueKeys keys(where);
      Json::sax_parse(text, &keys);
    }
    return Json::parse(text);
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
