#pragma once

#include <string>

#include "infini_train/conformance/runner.h"

/// How the reports word things, for all of their formats.
namespace infini_train::conformance {

/// "native", "falls back" or "missing".
std::string SupportOf(const OpResult& op);
/// The dtype that came nearest to its allowed error; null without trials.
const Accuracy* WorstOf(const OpResult& op);
std::string UlpsText(double ulps);
/// GFLOP/s where the op is bound by them, else GB/s of the fewest bytes.
std::string RateText(const Speed& speed);
/// Bytes moved over the fewest bytes; empty where the device does not count.
std::string TrafficText(const Speed& speed);

}  // namespace infini_train::conformance
