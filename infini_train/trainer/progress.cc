#include "infini_train/trainer/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace infini_train::trainer {

std::string FormatStep(const StepReport& r) {
  const std::string utilisation =
      r.flops_utilisation < 0 ? "" : fmt::format(" | {:.1f}% MFU", 100.0 * r.flops_utilisation);
  const std::string experts = r.auxiliary_loss < 0
                                  ? ""
                                  : fmt::format(" | aux loss {:.4f} | expert load {:.2f}",
                                                r.auxiliary_loss, r.expert_imbalance);
  constexpr std::size_t kMegabyte = 1 << 20;
  return fmt::format(
      "step {:4}/{} | train loss {:.6f} | norm {:.4f} | lr {:.2e}{} | ({:.2f} ms | {:.0f} tok/s{} "
      "| peak used: {:5} MB | peak reserved: {:5} MB, DP={}, TP=1, SP=1, PP=1)",
      r.step, r.total, r.loss, r.grad_norm, r.learning_rate, experts, r.milliseconds,
      r.tokens_per_second(), utilisation, r.peak_used / kMegabyte, r.peak_reserved / kMegabyte,
      r.data_parallel);
}

std::string FormatCount(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string FormatDuration(double seconds) {
  const auto total = static_cast<std::int64_t>(seconds + 0.5);
  const std::int64_t hours = total / 3600;
  const std::int64_t minutes = total / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60)
                   : fmt::format("{:02}:{:02}", minutes, total % 60);
}

namespace {

/// What matters most of a step, for narrow terminals.
std::string FormatStepBriefly(const StepReport& r) {
  return fmt::format("step {}/{} | loss {:.4f} | lr {:.2e} | {:.0f} tok/s", r.step, r.total, r.loss,
                     r.learning_rate, r.tokens_per_second());
}

/// Characters that fit on a line of the terminal behind a file.
std::size_t TerminalWidth(std::FILE* file) {
  struct winsize size = {};
  constexpr std::size_t kUsualWidth = 80;
  return ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualWidth;
}

}  // namespace

ProgressPrinter::ProgressPrinter(std::FILE* out)
    : out_(out), terminal_(out != nullptr && isatty(fileno(out)) == 1) {}

void ProgressPrinter::Step(const StepReport& report, bool log) {
  if (out_ == nullptr) return;
  if (terminal_) {
    const std::string eta = " | ETA " + FormatDuration(report.seconds_left);
    const std::string text = FormatStep(report) + eta;
    Transient(text.size() < TerminalWidth(out_) ? text : FormatStepBriefly(report) + eta);
  } else if (log) {
    fmt::print(out_, "{}\n", FormatStep(report));
  }
  std::fflush(out_);
}

void ProgressPrinter::Transient(const std::string& text) {
  if (!terminal_) return;
  // A line that wraps could not be rewritten.
  fmt::print(out_, "\r\033[K{}", text.substr(0, TerminalWidth(out_) - 1));
  std::fflush(out_);
  line_open_ = true;
}

void ProgressPrinter::Line(const std::string& text) {
  if (out_ == nullptr) return;
  Finish();
  fmt::print(out_, "{}\n", text);
  std::fflush(out_);
}

void ProgressPrinter::Finish() {
  if (line_open_) {
    fmt::print(out_, "\n");
    std::fflush(out_);
  }
  line_open_ = false;
}

}  // namespace infini_train::trainer
