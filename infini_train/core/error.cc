#include "infini_train/core/error.h"

namespace infini_train {

Error::Error(const std::string& message) : std::runtime_error(message) {}

Error::~Error() = default;

}  // namespace infini_train
