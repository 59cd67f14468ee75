#include "infini_train/core/json/json_node.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "infini_train/core/error.h"
#include "infini_train/core/json/untrusted_json.h"

namespace infini_train {
namespace {

const nlohmann::json kNull;

}  // namespace

JsonNode::JsonNode(const nlohmann::json& value, std::string_view file)
    : value_(&value), file_(std::make_shared<const std::string>(file)) {}

const std::string& JsonNode::String() const {
  const auto* text = value_->get_ptr<const std::string*>();
  if (text == nullptr) FailExpected("a string");
  return *text;
}

bool JsonNode::Bool() const {
  if (!value_->is_boolean()) FailExpected("true or false");
  return value_->get<bool>();
}

double JsonNode::Real() const {
  if (!value_->is_number()) FailExpected("a number");
  return value_->get<double>();
}

std::int64_t JsonNode::Integer() const {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  // A number above those of int64_t is stored as unsigned; get() would wrap it around.
  bool is_integer = false;
  if (value_->is_number_unsigned()) {
    is_integer = value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(kMost);
  } else if (value_->is_number_integer()) {
    const auto number = value_->get<std::int64_t>();
    is_integer = -kMost <= number && number <= kMost;
  }
  if (!is_integer) FailExpected("an integer");
  return value_->get<std::int64_t>();
}

std::int64_t JsonNode::Index(std::int64_t limit) const {
  const bool is_index = value_->is_number_unsigned()
                            ? value_->get<std::uint64_t>() < static_cast<std::uint64_t>(limit)
                            : value_->is_number_integer() && value_->get<std::int64_t>() >= 0 &&
                                  value_->get<std::int64_t>() < limit;
  if (!is_index) FailExpected(fmt::format("an integer from 0 to {}", limit - 1));
  return value_->get<std::int64_t>();
}

std::uint64_t JsonNode::Unsigned() const {
  const bool is_unsigned = value_->is_number_unsigned() ||
                           (value_->is_number_integer() && value_->get<std::int64_t>() >= 0);
  if (!is_unsigned) FailExpected("an integer of 0 or more");
  return value_->get<std::uint64_t>();
}

std::size_t JsonNode::Size() const {
  if (!value_->is_array()) FailExpected("an array");
  return value_->size();
}

JsonNode JsonNode::At(std::size_t index) const {
  if (index >= Size()) FailExpected(fmt::format("an array of at least {}", index + 1));
  JsonNode node;
  node.value_ = &(*value_)[index];
  node.file_ = file_;
  node.container_ =
      index_ < 0 && container_ ? container_ : std::make_shared<const std::string>(Place());
  node.index_ = static_cast<std::int64_t>(index);
  return node;
}

JsonNode JsonNode::Required(std::string_view name) const {
  const JsonNode node = Optional(name);
  if (node.is_null()) node.Fail("missing");
  return node;
}

JsonNode JsonNode::Optional(std::string_view name) const {
  CheckObject();
  const auto member = value_->find(name);
  return Member(member == value_->end() ? kNull : *member, name);
}

JsonNode JsonNode::Member(const nlohmann::json& value, std::string_view name) const {
  std::string place = Place();
  if (!place.empty()) place += '.';
  JsonNode node;
  node.value_ = &value;
  node.file_ = file_;
  node.container_ = std::make_shared<const std::string>(place.append(name));
  return node;
}

bool JsonNode::BoolOr(std::string_view name, bool otherwise) const {
  const JsonNode node = Optional(name);
  return node.is_null() ? otherwise : node.Bool();
}

std::string JsonNode::StringOr(std::string_view name, std::string_view otherwise) const {
  const JsonNode node = Optional(name);
  return node.is_null() ? std::string(otherwise) : node.String();
}

const std::string& JsonNode::Type(std::initializer_list<std::string_view> known) const {
  const JsonNode type = Required("type");
  const std::string& name = type.String();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    type.FailExpected(fmt::format("one of {}", fmt::join(known, ", ")));
  }
  return name;
}

void JsonNode::CheckObject() const {
  if (!value_->is_object()) FailExpected("an object");
}

std::string JsonNode::Place() const {
  if (container_ == nullptr) return "";
  return index_ < 0 ? *container_ : fmt::format("{}[{}]", *container_, index_);
}

void JsonNode::Fail(std::string_view message) const {
  const std::string place = Place();
  throw Error(fmt::format("{}: {}{}{}", *file_, place, place.empty() ? "" : ": ", message));
}

void JsonNode::FailExpected(std::string_view what) const {
  Fail(fmt::format("expected {}, found {}", what, DescribeJson(*value_)));
}

}  // namespace infini_train
