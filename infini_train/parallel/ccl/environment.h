#pragma once

#include <chrono>

namespace infini_train::parallel {

/// INFINI_TRAIN_CCL_TIMEOUT: how long a rank waits for others, in seconds (default 600). Throws
/// Error unless it is a positive number.
std::chrono::milliseconds CclTimeout();

/// INFINI_TRAIN_CCL_CHECK: whether calls are compared before they are made; 0 (default) or 1.
/// Throws Error for anything else.
bool CclChecks();

}  // namespace infini_train::parallel
