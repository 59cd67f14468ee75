#include "infini_train/trainer/profile/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace infini_train::trainer {
namespace {

using Json = nlohmann::ordered_json;

std::string NameOf(const OpRecord& record) {
  std::string name(GetOpInfo(record.op).name);
  if (record.fell_back) name += " (on the CPU)";
  return name;
}

double StepMicroseconds(const OpProfile& profile) {
  double sum = 0.0;
  for (const StepRecord& step : profile.steps)
    sum += step.duration;
  return sum;
}

/// What calls made by other calls take away from these.
std::vector<ProfileRow> OwnShares(const OpProfile& profile) {
  std::vector<ProfileRow> own(profile.ops.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    const OpRecord& record = profile.ops[i];
    own[i].microseconds += record.duration;
    own[i].bytes += record.cost.bytes;
    own[i].flops += record.cost.flops;
    // A fallback's call of the CPU's kernel is on another device, and a part of it all the same.
    if (record.parent < 0 ||
        profile.ops[static_cast<std::size_t>(record.parent)].device != record.device)
      continue;
    ProfileRow& parent = own[static_cast<std::size_t>(record.parent)];
    parent.microseconds -= record.duration;
    parent.bytes -= record.cost.bytes;
    parent.flops -= record.cost.flops;
  }
  for (ProfileRow& row : own) {
    row.microseconds = std::max(row.microseconds, 0.0);
    row.bytes = std::max(row.bytes, 0.0);
    row.flops = std::max(row.flops, 0.0);
  }
  return own;
}

std::string Rate(double amount, double microseconds, double unit) {
  if (amount <= 0.0 || microseconds <= 0.0) return "";
  return fmt::format("{:.3g}", amount / microseconds * 1e6 / unit);
}

/// One decimal in calls where steps differ.
std::string Calls(std::int64_t calls, double steps) {
  const double mean = static_cast<double>(calls) / steps;
  return mean == static_cast<double>(static_cast<std::int64_t>(mean)) ? fmt::format("{:.0f}", mean)
                                                                      : fmt::format("{:.1f}", mean);
}

/// `rows`, then the idle time and the sum, a step.
std::string Table(const OpProfile& profile, const std::vector<ProfileRow>& rows, bool by_tensors) {
  const auto steps = static_cast<double>(std::max<std::size_t>(profile.steps.size(), 1));
  const double total = std::max(StepMicroseconds(profile), 1e-9);
  std::size_t width = 6;
  for (const ProfileRow& row : rows)
    width = std::max(width, row.op.size());
  std::string text =
      fmt::format("{:<{}}  {:>7}  {:>9}  {:>6}  {:>7}  {:>7}{}\n", "op", width, "calls", "ms",
                  "share", "GB/s", "TFLOP/s", by_tensors ? "  tensors" : "");
  const auto line = [&](std::string_view name, std::string_view calls, double microseconds,
                        std::string_view bandwidth, std::string_view speed,
                        std::string_view tensors) {
    text +=
        fmt::format("{:<{}}  {:>7}  {:>9.3f}  {:>5.1f}%  {:>7}  {:>7}", name, width, calls,
                    microseconds / steps * 1e-3, 100.0 * microseconds / total, bandwidth, speed);
    if (!tensors.empty()) text += fmt::format("  {}", tensors);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  std::int64_t calls = 0;
  for (const ProfileRow& row : rows) {
    calls += row.calls;
    line(row.op, Calls(row.calls, steps), row.microseconds, Rate(row.bytes, row.microseconds, 1e9),
         Rate(row.flops, row.microseconds, 1e12), row.tensors);
  }
  line("(idle)", "", IdleMicroseconds(profile), "", "", "");
  line("total", Calls(calls, steps), StepMicroseconds(profile), "", "", "");
  return text;
}

std::string Heading(const OpProfile& profile) {
  if (profile.steps.empty()) return "no steps\n";
  return fmt::format("steps {} to {} on {}, times of a step\n\n", profile.steps.front().number,
                     profile.steps.back().number, profile.device.ToString());
}

}  // namespace

std::vector<ProfileRow> SummarizeOps(const OpProfile& profile, bool by_tensors) {
  const std::vector<ProfileRow> own = OwnShares(profile);
  std::map<std::pair<std::string, std::string>, ProfileRow> rows;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const OpRecord& record = profile.ops[i];
    if (record.device != profile.device) continue;
    const std::string name = NameOf(record);
    const std::string tensors = by_tensors ? record.tensors : "";
    ProfileRow& row = rows[{name, tensors}];
    row.op = name;
    row.tensors = tensors;
    ++row.calls;
    row.microseconds += own[i].microseconds;
    row.bytes += own[i].bytes;
    row.flops += own[i].flops;
  }
  std::vector<ProfileRow> sorted;
  for (auto& [key, row] : rows)
    sorted.push_back(std::move(row));
  std::stable_sort(sorted.begin(), sorted.end(), [](const ProfileRow& a, const ProfileRow& b) {
    return a.microseconds > b.microseconds;
  });
  return sorted;
}

double IdleMicroseconds(const OpProfile& profile) {
  double busy = 0.0;
  for (const OpRecord& record : profile.ops) {
    if (record.device == profile.device && record.parent < 0) busy += record.duration;
  }
  return std::max(StepMicroseconds(profile) - busy, 0.0);
}

std::string FormatOps(const OpProfile& profile) {
  return Heading(profile) + Table(profile, SummarizeOps(profile, false), false);
}

std::string FormatProfile(const OpProfile& profile) {
  return fmt::format("{}\n{}", FormatOps(profile),
                     Table(profile, SummarizeOps(profile, true), true));
}

std::string FormatTrace(const OpProfile& profile) {
  enum Process { kDevice, kHost };
  constexpr int kSteps = 0;
  Json events = Json::array();
  const auto name = [&](const char* kind, int process, int thread, const std::string& text) {
    events.push_back({{"name", kind},
                      {"ph", "M"},
                      {"pid", process},
                      {"tid", thread},
                      {"args", {{"name", text}}}});
  };
  const auto event = [&](const std::string& text, int process, int thread, double begin,
                         double duration, Json arguments) {
    events.push_back({{"name", text},
                      {"ph", "X"},
                      {"pid", process},
                      {"tid", thread},
                      {"ts", begin},
                      {"dur", duration},
                      {"args", std::move(arguments)}});
  };
  name("process_name", kDevice, kSteps, profile.device.ToString());
  name("thread_name", kDevice, kSteps, "steps");
  for (const StepRecord& step : profile.steps) {
    event(fmt::format("step {}", step.number), kDevice, kSteps, step.begin, step.duration,
          Json::object());
  }
  name("process_name", kHost, 0, "host");
  std::vector<std::pair<Device, StreamHandle>> streams;
  for (const OpRecord& record : profile.ops) {
    const std::pair<Device, StreamHandle> stream(record.device, record.stream);
    auto found = std::find(streams.begin(), streams.end(), stream);
    if (found == streams.end()) {
      streams.push_back(stream);
      found = streams.end() - 1;
      name("thread_name", kDevice, static_cast<int>(streams.size()),
           fmt::format("{}, stream {}", record.device.ToString(), streams.size()));
    }
    const int line = static_cast<int>(found - streams.begin()) + 1;
    Json arguments = {{"tensors", record.tensors}, {"bytes", record.cost.bytes}};
    if (record.cost.flops > 0.0) arguments["flops"] = record.cost.flops;
    const std::string text = NameOf(record);
    event(text, kHost, record.thread, record.host_begin, record.host_duration, arguments);
    event(text, kDevice, line, record.begin, record.duration, std::move(arguments));
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

}  // namespace infini_train::trainer
