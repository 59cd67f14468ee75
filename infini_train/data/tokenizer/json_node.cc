#include "infini_train/data/tokenizer/json_node.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "infini_train/core/error.h"
#include "infini_train/core/json/untrusted_json.h"

namespace infini_train {
namespace {

const nlohmann::json kNull;

// A value as an error message shows it: whole if it is short.
std::string Shown(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  return DescribeJson(value);
}

}  // namespace

const std::string& JsonNode::String() const {
  const auto* text = value_->get_ptr<const std::string*>();
  if (text == nullptr) FailExpected("a string");
  return *text;
}

bool JsonNode::Bool() const {
  if (!value_->is_boolean()) FailExpected("true or false");
  return value_->get<bool>();
}

int64_t JsonNode::Index(int64_t limit) const {
  const auto within = [&] {
    if (value_->is_number_unsigned()) {
      return value_->get<uint64_t>() < static_cast<uint64_t>(limit);
    }
    return value_->is_number_integer() && value_->get<int64_t>() >= 0 &&
           value_->get<int64_t>() < limit;
  };
  if (!within()) FailExpected(fmt::format("an integer from 0 to {}", limit - 1));
  return value_->get<int64_t>();
}

size_t JsonNode::Size() const {
  if (!value_->is_array()) FailExpected("an array");
  return value_->size();
}

JsonNode JsonNode::At(size_t index) const {
  if (index >= Size()) FailExpected(fmt::format("an array of at least {}", index + 1));
  JsonNode node((*value_)[index], *file_);
  node.container_ =
      index_ < 0 && container_ ? container_ : std::make_shared<const std::string>(Place());
  node.index_ = static_cast<int64_t>(index);
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
  JsonNode node(value, *file_);
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

void JsonNode::Fail(const std::string& message) const {
  const std::string place = Place();
  throw Error(fmt::format("{}: {}{}{}", *file_, place, place.empty() ? "" : ": ", message));
}

void JsonNode::FailExpected(std::string_view what) const {
  Fail(fmt::format("expected {}, found {}", what, Shown(*value_)));
}

}  // namespace infini_train
