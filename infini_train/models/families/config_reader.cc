#include "infini_train/models/families/config_reader.h"

#include <fmt/format.h>

#include "infini_train/core/json/untrusted_json.h"

namespace infini_train::models {

ConfigReader::ConfigReader(const nlohmann::json& json, std::string_view where)
    : fields_(json, where) {
  if (!json.is_object()) fields_.FailExpected("a JSON object");
}

JsonNode ConfigReader::Find(std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    if (Has(name)) return Field(name);
  }
  return Field(*names.begin());
}

JsonNode ConfigReader::Require(std::initializer_list<const char*> names) const {
  JsonNode field = Find(names);
  if (field.is_null()) field.Fail("missing");
  return field;
}

std::int64_t ConfigReader::Integer(std::initializer_list<const char*> names) const {
  return Require(names).Integer();
}

std::int64_t ConfigReader::Integer(std::initializer_list<const char*> names,
                                   std::int64_t fallback) const {
  const JsonNode field = Find(names);
  return field.is_null() ? fallback : field.Integer();
}

double ConfigReader::Real(std::initializer_list<const char*> names) const {
  return Require(names).Real();
}

double ConfigReader::Real(std::initializer_list<const char*> names, double fallback) const {
  const JsonNode field = Find(names);
  return field.is_null() ? fallback : field.Real();
}

bool ConfigReader::Boolean(const char* name, bool fallback) const {
  return fields_.BoolOr(name, fallback);
}

std::string ConfigReader::String(const char* name) const {
  return fields_.Required(name).String();
}

std::string ConfigReader::String(const char* name, std::string_view fallback) const {
  return fields_.StringOr(name, fallback);
}

std::vector<std::string> ConfigReader::Strings(const char* name) const {
  const JsonNode field = Field(name);
  std::vector<std::string> strings;
  for (std::size_t i = 0; !field.is_null() && i < field.Size(); ++i)
    strings.push_back(field.At(i).String());
  return strings;
}

std::optional<ConfigReader> ConfigReader::Object(const char* name) const {
  JsonNode field = Field(name);
  if (field.is_null()) return std::nullopt;
  if (!field.value().is_object()) field.FailExpected("an object");
  return ConfigReader(std::move(field));
}

std::vector<std::int64_t> ConfigReader::TokenIds(const char* name) const {
  const JsonNode field = Field(name);
  std::vector<std::int64_t> ids;
  if (field.is_null()) return ids;
  if (!field.value().is_array()) return {field.Integer()};
  for (std::size_t i = 0; i < field.Size(); ++i)
    ids.push_back(field.At(i).Integer());
  return ids;
}

void ConfigReader::ThrowUnsupported(const std::string& name, std::string_view expected) const {
  const JsonNode field = fields_.Optional(name);
  field.Fail(
      fmt::format("expected {}, found {}: not supported", expected, DescribeJson(field.value())));
}

}  // namespace infini_train::models
