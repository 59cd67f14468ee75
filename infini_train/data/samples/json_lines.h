#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/core/api.h"

namespace infini_train {

/// A line of a file of JSON lines to fine-tune on: {"text": ...}, or {"prompt": ..., "completion":
/// ...} of which the completion alone counts in the loss. Other fields are ignored.
struct JsonRecord {
  std::string prompt;
  std::string text;  ///< or the completion
  bool has_prompt = false;
};

/// Reads a line; nothing if it is blank. Throws Error that says which field is missing or of
/// another type, without the place of the line.
INFINI_TRAIN_API std::optional<JsonRecord> ParseJsonRecord(std::string_view line);

/// The files that `inputs` name: each is a file, a glob pattern, or a folder whose *.jsonl files,
/// also in folders below, are taken in order of their paths. Throws Error for one that names none.
INFINI_TRAIN_API std::vector<std::string> FindJsonLines(const std::vector<std::string>& inputs);

}  // namespace infini_train
