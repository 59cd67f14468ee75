#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "infini_train/conformance/format.h"
#include "infini_train/conformance/runner.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::conformance {
namespace {

/// JSON has no infinity.
nlohmann::ordered_json Number(double value) {
  if (std::isfinite(value)) return value;
  return "infinite";
}

}  // namespace

std::string SupportOf(const OpResult& op) {
  return op.is_native ? "native" : op.fallbacks > 0 ? "falls back" : "missing";
}

const Accuracy* WorstOf(const OpResult& op) {
  const Accuracy* worst = nullptr;
  for (const Accuracy& accuracy : op.accuracy)
    if (worst == nullptr || accuracy.worst_fraction > worst->worst_fraction) worst = &accuracy;
  return worst;
}

std::string UlpsText(double ulps) {
  return std::isfinite(ulps) ? fmt::format("{:.2f}", ulps) : "wrong";
}

std::string RateText(const Speed& speed) {
  if (speed.flops > 0) return fmt::format("{:.3g} GFLOP/s", speed.flops / speed.seconds / 1e9);
  return fmt::format("{:.3g} GB/s", speed.least_bytes / speed.seconds / 1e9);
}

std::string TrafficText(const Speed& speed) {
  if (!speed.moved_bytes || speed.least_bytes == 0) return "";
  return fmt::format("{:.2f}", *speed.moved_bytes / speed.least_bytes);
}

std::string ToJson(const Report& report) {
  nlohmann::ordered_json ops = nlohmann::ordered_json::array();
  for (const OpResult& op : report.ops) {
    nlohmann::ordered_json accuracy = nlohmann::ordered_json::array();
    for (const Accuracy& a : op.accuracy) {
      accuracy.push_back({{"dtype", ToString(a.dtype)},
                          {"trials", a.trials},
                          {"failures", a.failures},
                          {"worst_ulps", Number(a.worst_ulps)},
                          {"worst_fraction_of_allowed", Number(a.worst_fraction)},
                          {"worst_place", a.worst_place}});
    }
    nlohmann::ordered_json speeds = nlohmann::ordered_json::array();
    for (const Speed& s : op.speed) {
      nlohmann::ordered_json speed = {{"dtype", ToString(s.dtype)},
                                      {"shape", s.shape},
                                      {"seconds", s.seconds},
                                      {"least_bytes", s.least_bytes},
                                      {"bytes_per_second", s.least_bytes / s.seconds}};
      if (s.flops > 0) speed["flops_per_second"] = s.flops / s.seconds;
      if (s.moved_bytes) speed["moved_bytes"] = *s.moved_bytes;
      speeds.push_back(std::move(speed));
    }
    ops.push_back({{"name", GetOpInfo(op.op).name},
                   {"support", SupportOf(op)},
                   {"fallbacks", op.fallbacks},
                   {"passed", op.failures.empty()},
                   {"accuracy", std::move(accuracy)},
                   {"speed", std::move(speeds)},
                   {"skipped", op.skipped},
                   {"failures", op.failures}});
  }
  const nlohmann::ordered_json json = {{"device", report.device},
                                       {"device_name", report.device_name},
                                       {"compute_units", report.compute_units},
                                       {"warp_size", report.warp_size},
                                       {"framework_version", report.framework_version},
                                       {"extension_api_version", report.extension_api_version},
                                       {"num_ops", report.ops.size()},
                                       {"num_native", report.NumNative()},
                                       {"num_failed", report.NumFailedOps()},
                                       {"ops", std::move(ops)}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string ToMarkdown(const Report& report) {
  std::string text = fmt::format(
      "# Conformance of {}\n\n{}, {} compute units, warps of {}; InfiniTrain {}, extension API "
      "{}.\n\n"
      "{} of {} ops native, {} failed.\n\n"
      "| op | support | worst error (ulp) | of allowed | speed | traffic / least | result |\n"
      "|---|---|---|---|---|---|---|\n",
      report.device, report.device_name, report.compute_units, report.warp_size,
      report.framework_version, report.extension_api_version, report.NumNative(), report.ops.size(),
      report.NumFailedOps());
  for (const OpResult& op : report.ops) {
    std::string ulps;
    for (const Accuracy& a : op.accuracy)
      ulps += fmt::format("{}{} {}", ulps.empty() ? "" : ", ", ToString(a.dtype),
                          UlpsText(a.worst_ulps));
    std::string speeds;
    std::string traffic;
    for (const Speed& s : op.speed) {
      speeds += fmt::format("{}{} {}", speeds.empty() ? "" : ", ", ToString(s.dtype), RateText(s));
      if (traffic.empty()) traffic = TrafficText(s);
    }
    const Accuracy* worst = WorstOf(op);
    text += fmt::format("| {} | {}{} | {} | {} | {} | {} | {} |\n", GetOpInfo(op.op).name,
                        SupportOf(op),
                        op.fallbacks > 0 ? fmt::format(" ({} times)", op.fallbacks) : "", ulps,
                        worst == nullptr || !std::isfinite(worst->worst_fraction)
                            ? ""
                            : fmt::format("{:.0f}%", 100 * worst->worst_fraction),
                        speeds, traffic, op.failures.empty() ? "passed" : "**failed**");
  }
  text +=
      "\nErrors are in units of the last place at the larger of the reference's magnitude and the "
      "root mean square of its tensor (for sums, of what is summed). Speed counts the fewest bytes "
      "that the op must move.\n";
  std::string notes;
  for (const OpResult& op : report.ops) {
    for (const std::string& failure : op.failures)
      notes += fmt::format("- {} failed: {}\n", GetOpInfo(op.op).name, failure);
    for (const std::string& skipped : op.skipped)
      notes += fmt::format("- {} skipped: {}\n", GetOpInfo(op.op).name, skipped);
  }
  if (!notes.empty()) text += "\n## Notes\n\n" + notes;
  return text;
}

}  // namespace infini_train::conformance
