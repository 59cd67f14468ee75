#include "infini_train/trainer/stop_strings.h"

#include <algorithm>
#include <utility>

#include "infini_train/core/error.h"

namespace infini_train::trainer {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  if (std::find(stops_.begin(), stops_.end(), "") != stops_.end()) {
    throw Error("stop: expected text, got an empty string");
  }
}

std::size_t StopStrings::UndecidedLength() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t length = std::min(stop.size() - 1, pending_.size()); length > longest;
         --length) {
      if (pending_.ends_with(std::string_view(stop).substr(0, length))) longest = length;
    }
  }
  return longest;
}

std::string StopStrings::Push(std::string_view text) {
  if (found_) return {};
  pending_ += text;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_)
    end = std::min(end, pending_.find(stop));
  found_ = end != std::string::npos;
  if (!found_) end = pending_.size() - UndecidedLength();
  std::string decided = pending_.substr(0, end);
  pending_ = found_ ? std::string() : pending_.substr(end);
  return decided;
}

std::string StopStrings::Finish() {
  return std::exchange(pending_, {});
}

}  // namespace infini_train::trainer
