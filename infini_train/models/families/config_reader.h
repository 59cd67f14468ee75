#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace infini_train::models {

/// Typed fields of a config.json. A field may have several names; an explicit null counts as
/// absent. The JSON must outlive the reader.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& json, std::string where);

  const std::string& where() const { return where_; }
  /// Whether there are no fields.
  bool empty() const;
  /// Whether the field is written down, if only as null.
  bool Mentions(const char* name) const;
  /// Whether the field is there and not null.
  bool Has(const char* name) const { return Find({name}) != nullptr; }

  /// Throw Error when the field is there with another type, or absent where there is no fallback.
  std::int64_t Integer(std::initializer_list<const char*> names) const;
  std::int64_t Integer(std::initializer_list<const char*> names, std::int64_t fallback) const;
  double Real(std::initializer_list<const char*> names) const;
  double Real(std::initializer_list<const char*> names, double fallback) const;
  bool Boolean(const char* name, bool fallback) const;
  std::string String(const char* name, const std::string& fallback) const;
  /// Empty where the field is absent.
  std::vector<std::string> Strings(const char* name) const;
  /// The fields of a field that is an object.
  std::optional<ConfigReader> Object(const char* name) const;
  /// A token id or a list of them.
  std::vector<std::int64_t> TokenIds(const char* name) const;

  /// Throws Error: the field's value changes the maths and is not supported.
  [[noreturn]] void ThrowUnsupported(const std::string& name, const std::string& expected) const;

 private:
  const nlohmann::json* Find(std::initializer_list<const char*> names) const;
  void Require(std::initializer_list<const char*> names) const;

  const nlohmann::json* json_;
  std::string where_;
};

}  // namespace infini_train::models
