#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace infini_train {

/// A value inside a JSON file that knows where it is, so that what is wrong with it can be said as
/// `tokenizer.json: model.merges[17]: expected a string, found 5`. A view: the document outlives
/// it.
class JsonNode {
 public:
  /// The whole of a document, which errors call `file`.
  JsonNode(const nlohmann::json& value, std::string_view file);

  const nlohmann::json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }

  /// Accessors throw Error if the value is of another type.
  const std::string& String() const;
  bool Bool() const;
  double Real() const;
  /// An integer from -2^53 to 2^53: products of a few of them with small numbers fit 64 bits.
  std::int64_t Integer() const;
  /// An integer in [0, limit).
  std::int64_t Index(std::int64_t limit) const;
  /// An integer of 0 or more.
  std::uint64_t Unsigned() const;
  /// The number of elements of an array.
  std::size_t Size() const;

  JsonNode At(std::size_t index) const;            ///< of an array
  JsonNode Required(std::string_view name) const;  ///< of an object; null counts as missing
  /// A member of an object; a null value if there is none.
  JsonNode Optional(std::string_view name) const;
  bool BoolOr(std::string_view name, bool otherwise) const;
  std::string StringOr(std::string_view name, std::string_view otherwise) const;

  /// Calls `visit(key, node)` for every member of an object.
  template <typename Visitor>
  void ForEachMember(Visitor&& visit) const {
    CheckObject();
    for (auto member = value_->begin(); member != value_->end(); ++member) {
      visit(member.key(), Member(*member, member.key()));
    }
  }

  /// The value of member "type", which must be one of `known`.
  const std::string& Type(std::initializer_list<std::string_view> known) const;

  /// Throws Error: file, place, message.
  [[noreturn]] void Fail(std::string_view message) const;
  /// Throws Error: file, place, "expected <what>, found <the value>".
  [[noreturn]] void FailExpected(std::string_view what) const;

 private:
  JsonNode() = default;
  JsonNode Member(const nlohmann::json& value, std::string_view name) const;
  void CheckObject() const;
  std::string Place() const;

  const nlohmann::json* value_ = nullptr;
  std::shared_ptr<const std::string> file_;
  // Where the value is: in `container_`, as the element `index_` if that is not negative. Elements
  // share the place of their array, since arrays are what is long.
  std::shared_ptr<const std::string> container_;
  std::int64_t index_ = -1;
};

}  // namespace infini_train
