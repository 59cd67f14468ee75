#include "infini_train/data/samples/json_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/data/input_files.h"

namespace infini_train {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kWhiteSpace = " \t\r\n";

[[noreturn]] void ThrowFields(const Json& record) {
  std::vector<std::string> names;
  constexpr size_t kMostNames = 8;
  for (auto field = record.begin(); field != record.end() && names.size() < kMostNames; ++field)
    names.push_back(Json(field.key()).dump(-1, ' ', false, Json::error_handler_t::replace));
  throw Error(fmt::format(
      R"(expected "text", or "prompt" and "completion", found {})",
      names.empty() ? std::string("no field") : fmt::format("{}", fmt::join(names, ", "))));
}

std::string TakeString(Json& record, const char* name) {
  const auto field = record.find(name);
  if (field == record.end()) throw Error(fmt::format("\"{}\": missing", name));
  if (!field->is_string()) {
    throw Error(fmt::format("\"{}\": expected a string, found {}", name, field->type_name()));
  }
  return std::move(field->get_ref<std::string&>());
}

}  // namespace

std::optional<JsonRecord> ParseJsonRecord(std::string_view line) {
  if (line.find_first_not_of(kWhiteSpace) == std::string_view::npos) return std::nullopt;
  Json record;
  try {
    record = Json::parse(line);
  } catch (const Json::parse_error& error) {
    throw Error(
        fmt::format("expected a JSON object, found a mistake at byte {} of the line", error.byte));
  } catch (const Json::exception& error) {
    throw Error(fmt::format("expected a JSON object: {}", error.what()));
  }
  if (!record.is_object()) {
    throw Error(fmt::format("expected a JSON object, found {}", record.type_name()));
  }
  const bool has_text = record.contains("text");
  const bool has_prompt = record.contains("prompt");
  const bool has_completion = record.contains("completion");
  if (has_text ? has_prompt || has_completion : !has_prompt && !has_completion) ThrowFields(record);
  JsonRecord result;
  result.has_prompt = !has_text;
  if (!has_text) result.prompt = TakeString(record, "prompt");
  result.text = TakeString(record, has_text ? "text" : "completion");
  return result;
}

std::vector<std::string> FindJsonLines(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    if (!IsFolder(input)) {
      for (std::string& file : ExpandFiles({input}, "JSON lines"))
        files.push_back(std::move(file));
      continue;
    }
    const size_t before = files.size();
    for (std::string& file : FilesBelow(input)) {
      if (file.ends_with(".jsonl")) files.push_back(std::move(file));
    }
    if (files.size() == before) {
      throw Error(fmt::format("{}: expected files of JSON lines (*.jsonl), found none", input));
    }
  }
  return files;
}

}  // namespace infini_train
