// A run may be killed, and its disk may fill up, at any moment: what was saved before stays.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/checkpoint/training_checkpoint.h"
#include "infini_train/core/file.h"
#include "tests/common/errors.h"
#include "tests/common/temporary_folder.h"
#include "tests/core/child_process.h"

namespace infini_train::checkpoint {
namespace {

namespace fs = std::filesystem;

using infini_train::test::InChildProcess;
using infini_train::test::MessageOf;
using infini_train::test::TemporaryFolder;
using ::testing::HasSubstr;

constexpr std::int64_t kValues = 50'000;

/// A checkpoint of three files that all know its step.
void WriteStep(std::int64_t step, const fs::path& folder) {
  const std::vector<float> values(kValues, static_cast<float>(step));
  WriteSafetensorsFolder(folder, {{"w", Tensor::FromVector(values, {kValues})}}, 1 << 30);
  TrainingState state;
  state.step = step;
  state.optimizer = "sgd";
  state.optimizer_state = {{"momentum_buffer.w", Tensor::FromVector(values, {kValues})}};
  SaveTrainingState(state, folder);
}

/// The step that all files of a checkpoint agree on.
std::int64_t StepOf(const fs::path& folder) {
  const TrainingState state = LoadTrainingState(folder);
  const std::vector<float> expected(kValues, static_cast<float>(state.step));
  EXPECT_EQ(SafetensorsFolder(folder).Load("w").ToVector<float>(), expected);
  EXPECT_EQ(state.optimizer_state.at(0).second.ToVector<float>(), expected);
  return state.step;
}

/// Starts a process that runs `body` until it is killed.
template <typename Body>
pid_t Start(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  return child;
}

void WaitForKilled(pid_t child) {
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
}

TEST(Crash, LatestIsCompleteWheneverTheProcessIsKilled) {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  const auto save = [&](std::int64_t step) {
    CheckpointManager(root, 2).Save(step, [&](const fs::path& f) { WriteStep(step, f); });
  };
  const auto start = std::chrono::steady_clock::now();
  save(1);
  // Kills are spread over a few saves, however long one takes here.
  const auto longest = 8 * (std::chrono::steady_clock::now() - start);
  std::int64_t step = 1;
  std::int64_t progress = 0;
  std::mt19937 random(19);
  for (int round = 0; round < 40; ++round) {
    const pid_t child = Start([&] {
      // Every step is saved twice, so that replacing one is interrupted as well.
      for (std::int64_t next = step;; ++next) {
        save(next);
        save(next);
      }
    });
    ASSERT_GT(child, 0);
    std::this_thread::sleep_for(longest * std::uniform_real_distribution<>()(random));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_NO_FATAL_FAILURE(WaitForKilled(child));

    std::string latest = ReadFile((root / "latest").string());
    latest.pop_back();
    const std::int64_t found = StepOf(root / latest);
    EXPECT_EQ(FindCheckpoint(root), root / latest);
    EXPECT_GE(found, step);
    progress += found - step;
    step = found;
    ASSERT_FALSE(HasFailure()) << "in round " << round;
  }
  EXPECT_GT(progress, 0) << "no save was ever finished";
  save(step + 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(root), fs::directory_iterator()), 3);
}

TEST(Crash, KilledBetweenAnyTwoFiles) {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  CheckpointManager(root, 1).Save(5, [](const fs::path& f) { WriteStep(5, f); });
  for (const std::int64_t step : {5, 6}) {
    for (int files = 0; files < 4; ++files) {
      const pid_t child = Start([&] {
        CheckpointManager(root, 1).Save(step, [&](const fs::path& f) {
          for (int i = 0; i < files; ++i)
            WriteFileAtomically((f / std::to_string(i)).string(), "content");
          ::raise(SIGKILL);
        });
      });
      ASSERT_NO_FATAL_FAILURE(WaitForKilled(child));
      EXPECT_EQ(StepOf(FindCheckpoint(root)), 5);
    }
  }
}

std::vector<std::string> Tree(const fs::path& root) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    names.push_back(entry.path().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Crash, AFullDiskLeavesTheOldCheckpoint) {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  const CheckpointManager manager(root, 1);
  manager.Save(5, [](const fs::path& f) { WriteStep(5, f); });
  const auto before = Tree(root);
  for (const rlim_t limit : {0, 10, 1000, 150'000}) {
    InChildProcess([&] {
      // A file that grows beyond the limit fails like one on a full disk.
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limits{limit, limit};
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limits), 0);
      for (const std::int64_t step : {5, 6}) {
        EXPECT_THAT(
            MessageOf([&] { manager.Save(step, [&](const fs::path& f) { WriteStep(step, f); }); }),
            HasSubstr(root.string()));
      }
    });
    EXPECT_EQ(Tree(root), before) << limit;
    EXPECT_EQ(StepOf(FindCheckpoint(root)), 5);
  }
}

TEST(Crash, AReadOnlyFolderLeavesTheOldCheckpoint) {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  const CheckpointManager manager(root, 1);
  manager.Save(5, [](const fs::path& f) { WriteStep(5, f); });
  const auto before = Tree(root);
  ASSERT_EQ(::chmod(root.c_str(), 0555), 0);
  InChildProcess([&] {
    // Permissions do not stop the superuser.
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0) {
      ASSERT_EQ(::setuid(kNobody), 0);
    }
    for (const std::int64_t step : {5, 6}) {
      EXPECT_THAT(
          MessageOf([&] { manager.Save(step, [&](const fs::path& f) { WriteStep(step, f); }); }),
          HasSubstr(root.string()));
    }
    EXPECT_THAT(MessageOf([&] { SaveTrainingState(TrainingState{}, root); }),
                HasSubstr(root.string()));
    EXPECT_THAT(MessageOf([&] { WriteSafetensorsFolder(root, {}, 1); }), HasSubstr(root.string()));
  });
  ASSERT_EQ(::chmod(root.c_str(), 0755), 0);
  EXPECT_EQ(Tree(root), before);
  EXPECT_EQ(StepOf(FindCheckpoint(root)), 5);
}

}  // namespace
}  // namespace infini_train::checkpoint
