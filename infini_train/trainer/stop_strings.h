#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "infini_train/core/api.h"

namespace infini_train::trainer {

/// Cuts text that arrives in pieces at the first of several stop strings. What may be the beginning
/// of one waits until that is decided.
class INFINI_TRAIN_API StopStrings {
 public:
  /// Throws Error if one is empty.
  explicit StopStrings(std::vector<std::string> stops);

  /// The text that is now known to come before any stop string.
  std::string Push(std::string_view text);
  /// What still waits when no more text comes.
  std::string Finish();
  /// Whether a stop string was found; text after it is dropped.
  bool found() const { return found_; }

 private:
  /// Length of the longest end of pending_ that a stop string may begin with.
  std::size_t UndecidedLength() const;

  std::vector<std::string> stops_;
  std::string pending_;
  bool found_ = false;
};

}  // namespace infini_train::trainer
