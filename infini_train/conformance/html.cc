#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/conformance/format.h"
#include "infini_train/conformance/runner.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::conformance {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light; --ink: #1c2430; --soft: #5b6675; --line: #d9dee5; --good: #1f7a4d;
  --mid: #b7791f; --bad: #b3261e; --bar: #3566a8; --bar2: #d98e2b; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 1080px; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.about { color: var(--soft); margin-top: 0; }
.cards { display: flex; gap: 1rem; flex-wrap: wrap; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: .7rem 1.1rem; min-width: 8rem; }
.card b { display: block; font-size: 1.6rem; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th { text-align: left; border-bottom: 2px solid var(--ink); } td { border-bottom: 1px solid var(--line); }
th, td { padding: .25rem .5rem; vertical-align: top; }
.good { color: var(--good); } .mid { color: var(--mid); } .bad { color: var(--bad); font-weight: 600; }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink); } svg { max-width: 100%; height: auto; }
)";

std::string Escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

struct Bar {
  std::string label;
  std::string text;
  double value = 0;
  std::string_view colour;
  std::string hint;
};

/// Horizontal bars with a logarithmic axis from `least` to the largest value or `most`.
std::string BarChart(const std::vector<Bar>& bars, double least, double most, std::string_view axis,
                     double marked = 0) {
  constexpr double kLeft = 190, kWidth = 620, kRow = 17;
  for (const Bar& bar : bars)
    if (std::isfinite(bar.value)) most = std::max(most, bar.value);
  const auto position = [&](double value) {
    const double clamped = std::clamp(value, least, most);
    return kWidth * std::log(clamped / least) / std::log(most / least);
  };
  const double height = kRow * static_cast<double>(bars.size()) + 40;
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\" aria-label=\"{}\">",
                  kLeft + kWidth + 150, height, kLeft + kWidth + 150, Escape(axis));
  for (double tick = std::pow(10, std::ceil(std::log10(least))); tick <= most; tick *= 10) {
    const double x = kLeft + position(tick);
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"0\" x2=\"{0:.1f}\" y2=\"{1:.1f}\" stroke=\"#e4e8ee\"/>"
        "<text x=\"{0:.1f}\" y=\"{2:.1f}\" text-anchor=\"middle\">{3:g}</text>",
        x, height - 34, height - 20, tick);
  }
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const double y = kRow * static_cast<double>(i);
    const double width = std::isfinite(bars[i].value) ? position(bars[i].value) : kWidth;
    svg += fmt::format(
        "<g><title>{}</title><text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>"
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"11\" rx=\"2\" "
        "fill=\"var(--{})\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text></g>",
        Escape(bars[i].hint), kLeft - 6, y + 11, Escape(bars[i].label), kLeft, y + 2,
        std::max(width, 1.0), bars[i].colour, kLeft + std::max(width, 1.0) + 5, y + 11,
        Escape(bars[i].text));
  }
  if (marked > 0) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"0\" x2=\"{0:.1f}\" y2=\"{1:.1f}\" stroke=\"var(--bad)\" "
        "stroke-dasharray=\"4 3\"/>",
        kLeft + position(marked), height - 34);
  }
  return svg +
         fmt::format("<text x=\"{}\" y=\"{}\">{}</text></svg>\n", kLeft, height - 4, Escape(axis));
}

std::string AccuracyChart(const Report& report) {
  std::vector<Bar> bars;
  for (const OpResult& op : report.ops) {
    const Accuracy* worst = WorstOf(op);
    if (worst == nullptr || worst->worst_fraction == 0) continue;
    bars.push_back(
        {std::string(GetOpInfo(op.op).name),
         std::isfinite(worst->worst_fraction)
             ? fmt::format("{:.0f}% ({})", 100 * worst->worst_fraction, ToString(worst->dtype))
             : "wrong",
         worst->worst_fraction, worst->worst_fraction > 1 ? "bad" : "bar", worst->worst_place});
  }
  if (bars.empty()) return "<p>Every result is exact.</p>\n";
  return BarChart(bars, 1e-3, 1, "largest error as a fraction of the error allowed", 1);
}

std::string SpeedChart(const Report& report, bool flops) {
  std::vector<Bar> bars;
  double least = INFINITY;
  for (const OpResult& op : report.ops) {
    for (const Speed& speed : op.speed) {
      if ((speed.flops > 0) != flops) continue;
      const double rate = (flops ? speed.flops : speed.least_bytes) / speed.seconds / 1e9;
      least = std::min(least, rate);
      bars.push_back({fmt::format("{} {}", GetOpInfo(op.op).name, ToString(speed.dtype)),
                      RateText(speed), rate, speed.dtype == DataType::kFloat32 ? "bar" : "bar2",
                      fmt::format("shape {}, {:.3g} ms", speed.shape, 1e3 * speed.seconds)});
    }
  }
  if (bars.empty()) return "<p>Not measured.</p>\n";
  least = std::pow(10, std::floor(std::log10(std::max(least, 1e-6))));
  return BarChart(bars, least, 10 * least, flops ? "GFLOP/s" : "GB/s of the fewest bytes to move");
}

std::string Table(const Report& report) {
  std::string html =
      "<table><thead><tr><th>op</th><th>what it does</th><th>support</th><th>worst error (ulp)</th>"
      "<th>speed</th><th>traffic / least</th><th>result</th></tr></thead><tbody>\n";
  for (const OpResult& op : report.ops) {
    std::string ulps;
    for (const Accuracy& a : op.accuracy)
      ulps += fmt::format("{} {}<br>", ToString(a.dtype), UlpsText(a.worst_ulps));
    std::string speeds;
    std::string traffic;
    for (const Speed& s : op.speed) {
      speeds += fmt::format("{} {}<br>", ToString(s.dtype), RateText(s));
      if (const std::string text = TrafficText(s); !text.empty()) traffic += text + "<br>";
    }
    html += fmt::format(
        "<tr><td><b>{}</b></td><td>{}</td><td "
        "class=\"{}\">{}{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td class=\"{}\">{}</td></tr>\n",
        GetOpInfo(op.op).name, Escape(GetOpInfo(op.op).sentence), op.is_native ? "good" : "mid",
        SupportOf(op), op.fallbacks > 0 ? fmt::format(" ({} times)", op.fallbacks) : "", ulps,
        speeds, traffic, op.failures.empty() ? "good" : "bad",
        op.failures.empty() ? "passed" : "failed");
  }
  return html + "</tbody></table>\n";
}

std::string Notes(const Report& report) {
  std::string items;
  for (const OpResult& op : report.ops) {
    for (const std::string& failure : op.failures)
      items +=
          fmt::format("<li class=\"bad\">{}: {}</li>\n", GetOpInfo(op.op).name, Escape(failure));
    for (const std::string& skipped : op.skipped)
      items += fmt::format("<li>{} skipped, {}</li>\n", GetOpInfo(op.op).name, Escape(skipped));
  }
  return items.empty() ? "" : "<h2>Notes</h2>\n<ul>\n" + items + "</ul>\n";
}

}  // namespace

std::string ToHtml(const Report& report) {
  int trials = 0;
  int fallbacks = 0;
  for (const OpResult& op : report.ops) {
    fallbacks += op.fallbacks > 0;
    for (const Accuracy& accuracy : op.accuracy)
      trials += accuracy.trials;
  }
  const auto card = [](std::string_view number, std::string_view what, std::string_view colour) {
    return fmt::format("<div class=\"card\"><b class=\"{}\">{}</b>{}</div>", colour, number, what);
  };
  const int failed = report.NumFailedOps();
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Conformance of "
      "{0}</title>"
      "<meta name=\"viewport\" content=\"width=device-width\"><style>{1}</style></head><body>\n"
      "<h1>Conformance of {0}</h1><p class=\"about\">{2}, {3} compute units, warps of {4}. "
      "InfiniTrain "
      "{5}, extension API {6}.</p>\n<div class=\"cards\">",
      Escape(report.device), kStyle, Escape(report.device_name), report.compute_units,
      report.warp_size, Escape(report.framework_version), report.extension_api_version);
  html += card(fmt::format("{} / {}", report.NumNative(), report.ops.size()),
               "ops with a native kernel", "good");
  html += card(fmt::format("{}", fallbacks), "ops that fall back to the CPU",
               fallbacks > 0 ? "mid" : "good");
  html += card(fmt::format("{}", trials), "trials against float64", "good");
  html += card(fmt::format("{}", failed), "ops failed", failed > 0 ? "bad" : "good");
  html += "</div>\n<h2>How exact</h2>\n" + AccuracyChart(report);
  html += "<h2>How fast: memory</h2>\n" + SpeedChart(report, false);
  html += "<h2>How fast: arithmetic</h2>\n" + SpeedChart(report, true);
  html += Notes(report) + "<h2>Every op</h2>\n" + Table(report);
  html +=
      "<p class=\"about\">Errors are in units of the last place at the larger of the reference's "
      "magnitude and the root mean square of its tensor (for sums, of what is summed). Traffic is "
      "what the kernels read and "
      "wrote, "
      "over the fewest bytes that the op must move.</p>\n</body></html>\n";
  return html;
}

}  // namespace infini_train::conformance
