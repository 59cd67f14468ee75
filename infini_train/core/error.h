#pragma once

#include <stdexcept>
#include <string>

#include "infini_train/core/api.h"

namespace infini_train {

/// What the library throws on bad input. `what()` is one line that says what was expected and what
/// was found. Programs print it after their name and exit with status 2.
///
/// Messages are composed with fmt in source files: `throw Error(fmt::format(...))`.
class INFINI_TRAIN_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message);
  ~Error() override;
};

}  // namespace infini_train
