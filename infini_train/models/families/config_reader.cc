#include "infini_train/models/families/config_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "infini_train/core/error.h"
#include "infini_train/core/json/untrusted_json.h"

namespace infini_train::models {
namespace {

[[noreturn]] void ThrowWrongType(const std::string& where, const char* name, const char* expected,
                                 const nlohmann::json& found) {
  throw Error(
      fmt::format("{}: {}: expected {}, found {}", where, name, expected, DescribeJson(found)));
}

/// Sizes stay far below where products of a few of them with small numbers overflow.
bool IsInteger(const nlohmann::json& value) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 53;
  if (value.is_number_unsigned()) return value.get<std::uint64_t>() <= kLimit;
  return value.is_number_integer() && value.get<std::int64_t>() >= -kLimit;
}

}  // namespace

ConfigReader::ConfigReader(const nlohmann::json& json, std::string where)
    : json_(&json), where_(std::move(where)) {
  if (!json.is_object()) throw Error(fmt::format("{}: expected a JSON object", where_));
}

const nlohmann::json* ConfigReader::Find(std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    const auto found = json_->find(name);
    if (found != json_->end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

bool ConfigReader::empty() const {
  return json_->empty();
}

bool ConfigReader::Mentions(const char* name) const {
  return json_->contains(name);
}

void ConfigReader::Require(std::initializer_list<const char*> names) const {
  if (Find(names) == nullptr) {
    throw Error(fmt::format("{}: field {} is missing", where_, *names.begin()));
  }
}

std::int64_t ConfigReader::Integer(std::initializer_list<const char*> names) const {
  Require(names);
  return Integer(names, 0);
}

std::int64_t ConfigReader::Integer(std::initializer_list<const char*> names,
                                   std::int64_t fallback) const {
  const nlohmann::json* value = Find(names);
  if (value == nullptr) return fallback;
  if (!IsInteger(*value)) ThrowWrongType(where_, *names.begin(), "an integer", *value);
  return value->get<std::int64_t>();
}

double ConfigReader::Real(std::initializer_list<const char*> names) const {
  Require(names);
  return Real(names, 0.0);
}

double ConfigReader::Real(std::initializer_list<const char*> names, double fallback) const {
  const nlohmann::json* value = Find(names);
  if (value == nullptr) return fallback;
  if (!value->is_number()) ThrowWrongType(where_, *names.begin(), "a number", *value);
  return value->get<double>();
}

bool ConfigReader::Boolean(const char* name, bool fallback) const {
  const nlohmann::json* value = Find({name});
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) ThrowWrongType(where_, name, "true or false", *value);
  return value->get<bool>();
}

std::string ConfigReader::String(const char* name, const std::string& fallback) const {
  const nlohmann::json* value = Find({name});
  if (value == nullptr) return fallback;
  if (!value->is_string()) ThrowWrongType(where_, name, "a string", *value);
  return value->get<std::string>();
}

std::vector<std::string> ConfigReader::Strings(const char* name) const {
  const nlohmann::json* value = Find({name});
  std::vector<std::string> strings;
  if (value == nullptr) return strings;
  const bool is_list = value->is_array();
  for (std::size_t i = 0; is_list && i < value->size(); ++i) {
    const nlohmann::json& item = (*value)[i];
    if (!item.is_string()) ThrowWrongType(where_, name, "a list of strings", *value);
    strings.push_back(item.get<std::string>());
  }
  if (!is_list) ThrowWrongType(where_, name, "a list of strings", *value);
  return strings;
}

std::optional<ConfigReader> ConfigReader::Object(const char* name) const {
  const nlohmann::json* value = Find({name});
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) ThrowWrongType(where_, name, "an object", *value);
  return ConfigReader(*value, fmt::format("{}: {}", where_, name));
}

std::vector<std::int64_t> ConfigReader::TokenIds(const char* name) const {
  const nlohmann::json* value = Find({name});
  std::vector<std::int64_t> ids;
  if (value == nullptr) return ids;
  const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
  for (const nlohmann::json& id : list) {
    if (!IsInteger(id)) ThrowWrongType(where_, name, "a token id or a list of them", *value);
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

void ConfigReader::ThrowUnsupported(const std::string& name, const std::string& expected) const {
  throw Error(fmt::format("{}: {}: expected {}, found {}: not supported", where_, name, expected,
                          DescribeJson(json_->at(name))));
}

}  // namespace infini_train::models
