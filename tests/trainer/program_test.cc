// The program as a process: signals, limits of the system, terminals.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/trainer/tiny_run.h"

namespace infini_train::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// `infini-train train` in a process of its own, with its output in files.
class Program {
 public:
  Program(
      const TinyRun& run, const std::vector<std::string>& more,
      const std::function<void()>& prepare = [] {})
      : out_(run / "stdout"), error_(run / "stderr") {
    std::vector<std::string> arguments = {INFINI_TRAIN_PROGRAM, "train"};
    for (const auto& list : {run.Arguments(), more})
      arguments.insert(arguments.end(), list.begin(), list.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments)
      argv.push_back(argument.data());
    argv.push_back(nullptr);
    child_ = ::fork();
    if (child_ == 0) {
      Redirect(out_, STDOUT_FILENO);
      Redirect(error_, STDERR_FILENO);
      prepare();
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }

  ~Program() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
  }

  void Signal(int signal) const { ::kill(child_, signal); }

  /// The exit status; the negative signal if one ended it.
  int Wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(child_, &status, 0), child_);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string out() const { return ReadFile(out_); }
  std::string error() const { return ReadFile(error_); }

 private:
  static void Redirect(const std::string& path, int descriptor) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(file, descriptor);
    ::close(file);
  }

  std::string out_;
  std::string error_;
  pid_t child_ = -1;
};

void WaitForText(const std::string& path, const std::string& text) {
  for (int i = 0; i < 6000; ++i) {
    if (std::filesystem::exists(path) && ReadFile(path).find(text) != std::string::npos) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "no " << text << " in " << path;
}

class SignalTest : public ::testing::TestWithParam<int> {};

TEST_P(SignalTest, FinishesTheStepSavesAndSaysHowToResume) {
  const TinyRun run;
  Program program(run, {"--num_iteration", "100000000", "--save", run / "out", "--metrics_file",
                        run / "metrics.jsonl"});
  WaitForText(run / "metrics.jsonl", "\"step\":3,");
  program.Signal(GetParam());
  EXPECT_EQ(program.Wait(), 128 + GetParam());
  EXPECT_EQ(program.error(), "");
  EXPECT_THAT(program.out(),
              AllOf(HasSubstr(GetParam() == SIGINT ? "stopped by SIGINT after step"
                                                   : "stopped by SIGTERM after step"),
                    HasSubstr("go on with the same command and --load " + (run / "out"))));
  const auto last = ReadMetrics(run / "metrics.jsonl").back()["step"].get<int>();
  EXPECT_THAT(program.out(), HasSubstr("after step " + std::to_string(last)));

  Program resumed(run, {"--num_iteration", std::to_string(last + 2), "--load", run / "out"});
  EXPECT_EQ(resumed.Wait(), 0) << resumed.error();
  EXPECT_THAT(resumed.out(), HasSubstr("after step " + std::to_string(last) + "\n"));
}

INSTANTIATE_TEST_SUITE_P(Signals, SignalTest, ::testing::Values(SIGINT, SIGTERM),
                         [](const auto& info) {
                           return info.param == SIGINT ? "Interrupt" : "Terminate";
                         });

TEST(Signals, WithoutASaveFolderNothingIsSavedAndThatIsSaid) {
  const TinyRun run;
  Program program(run, {"--num_iteration", "100000000", "--metrics_file", run / "metrics.jsonl"});
  WaitForText(run / "metrics.jsonl", "\"step\":1,");
  program.Signal(SIGINT);
  EXPECT_EQ(program.Wait(), 130);
  EXPECT_THAT(program.out(), HasSubstr("nothing was saved: no --save was given"));
}

TEST(Signals, EndAllRanksAfterTheSameStep) {
  const TinyRun run;
  Program program(run, {"--num_iteration", "100000000", "--save", run / "out",
                        "--nthread_per_process", "2", "--metrics_file", run / "metrics.jsonl"});
  WaitForText(run / "metrics.jsonl", "\"step\":3,");
  program.Signal(SIGINT);
  EXPECT_EQ(program.Wait(), 130);
  EXPECT_EQ(program.error(), "");
  EXPECT_THAT(program.out(), HasSubstr("stopped by SIGINT after step"));
  EXPECT_EQ(program.out().find("stopped"), program.out().rfind("stopped"));

  // In another number of ranks.
  const auto last = ReadMetrics(run / "metrics.jsonl").back()["step"].get<int>();
  Program resumed(run, {"--num_iteration", std::to_string(last + 2), "--load", run / "out",
                        "--batch_size", "4"});
  EXPECT_EQ(resumed.Wait(), 0) << resumed.error();
}

TEST(Ranks, AFailureIsOneLine) {
  const TinyRun run;
  Program program(run, {"--learning_rate", "1e30", "--nthread_per_process", "4"});
  EXPECT_EQ(program.Wait(), 2);
  const std::string error = program.error();
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
  EXPECT_THAT(error, HasSubstr("expected finite numbers"));
}

TEST(FullDisk, KeepsTheOldCheckpoint) {
  const TinyRun run;
  Program first(run, {"--save", run / "out"});
  ASSERT_EQ(first.Wait(), 0) << first.error();
  const std::string checkpoint = run / "out/checkpoint_step_000004";
  const std::string weights = ReadFile(checkpoint + "/model.safetensors");

  Program second(run, {"--save", run / "out", "--load", run / "out", "--num_iteration", "6"}, [] {
    // Room for the output, and for a part of the weights.
    const struct rlimit limit = {16'000, 16'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_IGN);
  });
  EXPECT_EQ(second.Wait(), 2);
  const std::string error = second.error();
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
  EXPECT_THAT(error, HasSubstr("File too large"));
  EXPECT_EQ(ReadFile(run / "out/latest"), "checkpoint_step_000004\n");
  EXPECT_EQ(ReadFile(checkpoint + "/model.safetensors"), weights);
  for (const auto& entry : std::filesystem::directory_iterator(run / "out"))
    EXPECT_THAT(entry.path().string(), Not(HasSubstr("000006"))) << "nothing half-written stays";
}

TEST(Terminal, GetsOneLineThatIsRewritten) {
  const TinyRun run;
  int reader = -1;
  int writer = -1;
  struct winsize size = {24, 220, 0, 0};
  ASSERT_EQ(::openpty(&reader, &writer, nullptr, nullptr, &size), 0);
  Program program(run, {}, [&] {
    ::dup2(writer, STDOUT_FILENO);
    ::close(reader);
  });
  ::close(writer);
  std::string screen;
  char buffer[4096];
  for (ssize_t count; (count = ::read(reader, buffer, sizeof(buffer))) > 0;)
    screen.append(buffer, static_cast<std::size_t>(count));
  ::close(reader);
  EXPECT_EQ(program.Wait(), 0) << program.error();

  std::size_t begin = screen.find("\r\x1b[K");
  ASSERT_NE(begin, std::string::npos) << screen;
  const std::string progress = screen.substr(begin);
  // Four steps, each over the last, and one line end behind them.
  std::size_t rewrites = 0;
  for (std::size_t at = 0; (at = progress.find("\r\x1b[K", at)) != std::string::npos; ++at)
    ++rewrites;
  EXPECT_EQ(rewrites, 4u);
  EXPECT_THAT(progress, AllOf(HasSubstr("step    1/4 | train loss"),
                              HasSubstr("step    4/4 | train loss"), HasSubstr("| ETA 00:00\r\n")));
  EXPECT_EQ(std::count(progress.begin(), progress.end(), '\n'), 1);
}

}  // namespace
}  // namespace infini_train::trainer
