#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "infini_train/core/json/json_node.h"

namespace infini_train::models {

/// Typed fields of a config.json. A field may have several names; an explicit null counts as
/// absent. The JSON must outlive the reader. Functions throw Error when the field is there with
/// another type, or absent where there is no fallback.
class ConfigReader {
 public:
  /// Throws Error unless `json`, in the file `where`, is an object.
  ConfigReader(const nlohmann::json& json, std::string_view where);

  /// Whether there are no fields.
  bool empty() const { return fields_.value().empty(); }
  /// Whether the field is written down, if only as null.
  bool Mentions(const char* name) const { return fields_.value().contains(name); }
  /// Whether the field is there and not null.
  bool Has(const char* name) const { return !Field(name).is_null(); }
  /// The field as it is; null where it is absent.
  JsonNode Field(const char* name) const { return fields_.Optional(name); }

  std::int64_t Integer(std::initializer_list<const char*> names) const;
  std::int64_t Integer(std::initializer_list<const char*> names, std::int64_t fallback) const;
  double Real(std::initializer_list<const char*> names) const;
  double Real(std::initializer_list<const char*> names, double fallback) const;
  bool Boolean(const char* name, bool fallback) const;
  std::string String(const char* name) const;
  std::string String(const char* name, std::string_view fallback) const;
  /// Empty where the field is absent.
  std::vector<std::string> Strings(const char* name) const;
  /// The fields of a field that is an object.
  std::optional<ConfigReader> Object(const char* name) const;
  /// A token id or a list of them.
  std::vector<std::int64_t> TokenIds(const char* name) const;

  /// Throws Error: the field's value changes the maths and is not supported.
  [[noreturn]] void ThrowUnsupported(const std::string& name, std::string_view expected) const;

 private:
  explicit ConfigReader(JsonNode fields) : fields_(std::move(fields)) {}
  /// The first of the names that is there; null where none is.
  JsonNode Find(std::initializer_list<const char*> names) const;
  JsonNode Require(std::initializer_list<const char*> names) const;

  JsonNode fields_;
};

}  // namespace infini_train::models
