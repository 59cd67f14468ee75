#include "infini_train/core/checklist/tensor_checklist.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <tuple>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

/// Part of a name between dots.
struct Segment {
  std::size_t begin = 0;
  std::size_t end = 0;
};

bool IsNumber(std::string_view text) {
  constexpr std::size_t kMostDigits = 9;
  return !text.empty() && text.size() <= kMostDigits && (text[0] != '0' || text.size() == 1) &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// The part of a name with its number `position`, counted from 0: a number or several of them
/// ("{0-3}").
std::optional<Segment> NumberedSegment(std::string_view name, int position) {
  name = name.substr(0, name.find(' '));
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view text = name.substr(begin, end - begin);
    if ((IsNumber(text) || text.starts_with('{')) && position-- == 0) return Segment{begin, end};
    begin = end + 1;
  }
  return std::nullopt;
}

/// "0-3,7" of 0, 1, 2, 3, 7.
std::string Ranges(const std::set<std::int64_t>& numbers) {
  std::vector<std::string> ranges;
  for (auto first = numbers.begin(); first != numbers.end();) {
    auto last = first;
    auto next = std::next(first);
    for (; next != numbers.end() && *next == *last + 1; ++next)
      last = next;
    ranges.push_back(first == last ? fmt::format("{}", *first)
                                   : fmt::format("{}-{}", *first, *last));
    first = next;
  }
  return fmt::format("{}", fmt::join(ranges, ","));
}

}  // namespace

std::string JoinNames(std::vector<std::string> names) {
  struct Group {
    std::string before, after;
    std::set<std::int64_t> numbers;
  };
  bool any = true;
  for (int position = 0; any; ++position) {
    any = false;
    std::vector<Group> groups;
    std::map<std::tuple<bool, std::string, std::string>, std::size_t> group_of;
    for (const std::string& name : names) {
      const std::optional<Segment> segment = NumberedSegment(name, position);
      any = any || segment;
      Group group{name, "", {}};
      if (segment && name[segment->begin] != '{') {
        std::int64_t number = 0;
        std::from_chars(name.data() + segment->begin, name.data() + segment->end, number);
        group = {name.substr(0, segment->begin), name.substr(segment->end), {number}};
      }
      const auto [found, is_new] = group_of.emplace(
          std::tuple(group.numbers.empty(), group.before, group.after), groups.size());
      if (is_new) {
        groups.push_back(std::move(group));
      } else {
        groups[found->second].numbers.merge(group.numbers);
      }
    }
    names.clear();
    for (const Group& group : groups) {
      const std::string numbers = Ranges(group.numbers);
      names.push_back(group.before + (group.numbers.size() > 1 ? '{' + numbers + '}' : numbers) +
                      group.after);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

TensorChecklist::TensorChecklist(std::string source, const NamedTensors& found)
    : source_(std::move(source)) {
  for (const auto& [name, tensor] : found)
    AddFound(name, tensor.dtype(), tensor.shape());
}

void TensorChecklist::AddFound(const std::string& name, DataType dtype, const Dims& shape) {
  found_.emplace(name, Entry{dtype, shape});
}

bool TensorChecklist::ContainsPrefix(const std::string& prefix) const {
  const auto found = found_.lower_bound(prefix);
  return found != found_.end() && found->first.starts_with(prefix);
}

bool TensorChecklist::Expect(const std::string& name, const Dims& shape) {
  expected_.insert(name);
  const auto found = found_.find(name);
  if (found == found_.end()) {
    missing_.push_back(name);
  } else if (!(found->second.shape == shape)) {
    misshapen_.push_back(fmt::format("{} (expected {}, found {})", name, shape.ToString(),
                                     found->second.shape.ToString()));
  } else {
    return true;
  }
  return false;
}

bool TensorChecklist::ExpectFloating(const std::string& name, const Dims& shape) {
  if (!Expect(name, shape)) return false;
  const DataType found = found_.at(name).dtype;
  if (IsFloatingPoint(found)) return true;
  mistyped_.push_back(
      fmt::format("{} (expected a floating type, found {})", name, ToString(found)));
  return false;
}

bool TensorChecklist::ExpectType(const std::string& name, const Dims& shape, DataType dtype) {
  if (!Expect(name, shape)) return false;
  const DataType found = found_.at(name).dtype;
  if (found == dtype) return true;
  mistyped_.push_back(
      fmt::format("{} (expected {}, found {})", name, ToString(dtype), ToString(found)));
  return false;
}

void TensorChecklist::NoteValues(const std::string& name, std::string_view expected, double found) {
  misvalued_.push_back(fmt::format("{} (expected {}, found {})", name, expected, found));
}

void TensorChecklist::ThrowIfWrong(
    std::string_view what, const std::function<bool(std::string_view)>& is_ignorable) const {
  std::vector<std::string> unexpected;
  for (const auto& [name, entry] : found_) {
    if (!expected_.contains(name) && !(is_ignorable && is_ignorable(name)))
      unexpected.push_back(name);
  }
  std::string message;
  const auto list = [&](std::string_view title, const std::vector<std::string>& names) {
    if (!names.empty()) message += fmt::format("; {}: {}", title, JoinNames(names));
  };
  list("missing", missing_);
  list("unexpected", unexpected);
  list("wrong shape", misshapen_);
  list("wrong type", mistyped_);
  list("wrong values", misvalued_);
  if (!message.empty()) throw Error(fmt::format("{} does not fit {}{}", source_, what, message));
}

}  // namespace infini_train
