#include "infini_train/trainer/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace infini_train::trainer {
namespace {

using ::testing::HasSubstr;

StepReport Report() {
  StepReport report;
  report.step = 7;
  report.total = 1000;
  report.loss = 4.3721589;
  report.grad_norm = 1.23456;
  report.learning_rate = 1e-4;
  report.milliseconds = 12.345;
  report.tokens = 256;
  report.seconds_left = 12.3;
  report.peak_used = std::size_t{12} << 20;
  report.peak_reserved = std::size_t{12345} << 20;
  return report;
}

TEST(FormatStep, IsTheLineThatLogReadersKnow) {
  EXPECT_EQ(FormatStep(Report()),
            "step    7/1000 | train loss 4.372159 | norm 1.2346 | lr 1.00e-04 | (12.35 ms | 20737 "
            "tok/s | peak used:    12 MB | peak reserved: 12345 MB, DP=1, TP=1, SP=1, PP=1)");
}

TEST(FormatStep, SaysHowExpertsAreUsed) {
  StepReport report = Report();
  report.auxiliary_loss = 2.01239;
  report.expert_imbalance = 1.234;
  EXPECT_THAT(FormatStep(report),
              HasSubstr("| lr 1.00e-04 | aux loss 2.0124 | expert load 1.23 | (12.35 ms"));
}

TEST(FormatStep, HasUtilisationWhereAPeakIsKnown) {
  StepReport report = Report();
  report.flops_utilisation = 0.4567;
  EXPECT_THAT(FormatStep(report), HasSubstr("| 20737 tok/s | 45.7% MFU | peak used:"));
}

TEST(FormatCount, SaysOneOrMany) {
  EXPECT_EQ(FormatCount(0, "file"), "0 files");
  EXPECT_EQ(FormatCount(1, "packed sequence"), "1 packed sequence");
  EXPECT_EQ(FormatCount(2, "file"), "2 files");
}

TEST(FormatDuration, HasHoursWhereNeeded) {
  EXPECT_EQ(FormatDuration(0), "00:00");
  EXPECT_EQ(FormatDuration(59.6), "01:00");
  EXPECT_EQ(FormatDuration(3599.4), "59:59");
  EXPECT_EQ(FormatDuration(3600), "1:00:00");
  EXPECT_EQ(FormatDuration(100 * 3600 + 62), "100:01:02");
}

TEST(ProgressPrinter, PrintsPlainLinesToAFile) {
  std::FILE* file = std::tmpfile();
  ProgressPrinter printer(file);
  printer.Step(Report(), true);
  printer.Step(Report(), false);
  printer.Transient("not for files");
  printer.Line("saved");
  printer.Finish();
  std::rewind(file);
  char buffer[1000] = {};
  const std::size_t size = std::fread(buffer, 1, sizeof(buffer), file);
  std::fclose(file);
  EXPECT_EQ(std::string(buffer, size), FormatStep(Report()) + "\nsaved\n");
}

/// A terminal of a width, and what was printed to it.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    struct winsize size = {24, columns, 0, 0};
    EXPECT_EQ(openpty(&reader_, &writer_, nullptr, nullptr, &size), 0);
    file_ = fdopen(writer_, "w");
  }
  ~Terminal() {
    std::fclose(file_);
    close(reader_);
  }

  std::FILE* file() const { return file_; }

  /// Everything up to now; there must be something.
  std::string Read() {
    std::fflush(file_);
    char buffer[4096];
    const ssize_t size = read(reader_, buffer, sizeof(buffer));
    return size > 0 ? std::string(buffer, static_cast<std::size_t>(size)) : "";
  }

 private:
  int reader_ = -1;
  int writer_ = -1;
  std::FILE* file_ = nullptr;
};

TEST(ProgressPrinter, RewritesOneLineOnATerminal) {
  Terminal terminal(200);
  ProgressPrinter printer(terminal.file());
  printer.Step(Report(), true);
  const std::string line = FormatStep(Report());
  EXPECT_EQ(terminal.Read(), "\r\x1b[K" + line + " | ETA 00:12");
  StepReport next = Report();
  next.step = 8;
  printer.Step(next, true);
  EXPECT_EQ(terminal.Read(), "\r\x1b[K" + FormatStep(next) + " | ETA 00:12");
  printer.Line("saved");
  EXPECT_EQ(terminal.Read(), "\r\nsaved\r\n") << "below the progress line";
  printer.Step(next, false);
  terminal.Read();
  printer.Finish();
  EXPECT_EQ(terminal.Read(), "\r\n") << "the last progress line stays";
}

TEST(ProgressPrinter, ShortensTheLineToTheTerminal) {
  Terminal terminal(80);
  ProgressPrinter printer(terminal.file());
  printer.Step(Report(), true);
  EXPECT_EQ(terminal.Read(),
            "\r\x1b[Kstep 7/1000 | loss 4.3722 | lr 1.00e-04 | 20737 tok/s | ETA 00:12");
  printer.Transient(std::string(100, 'x'));
  EXPECT_EQ(terminal.Read(), "\r\x1b[K" + std::string(79, 'x'));
}

}  // namespace
}  // namespace infini_train::trainer
