#include "infini_train/checkpoint/training_checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/checkpoint/state/state_json.h"
#include "infini_train/core/error.h"
#include "infini_train/core/file.h"

namespace infini_train::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint_step_";

/// The step in a checkpoint folder's name; -1 for other names.
std::int64_t StepOf(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return -1;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  std::int64_t step = -1;
  const auto [rest, error] = std::from_chars(begin, end, step);
  return error == std::errc() && rest == end ? step : -1;
}

bool IsCheckpoint(const fs::path& folder) {
  return PathExists(TrainingStatePath(folder));
}

/// Checkpoints below `root`, oldest first.
std::vector<std::pair<std::int64_t, fs::path>> ListCheckpoints(const fs::path& root) {
  std::vector<std::pair<std::int64_t, fs::path>> result;
  for (const fs::path& folder : ListFolder(root)) {
    const std::int64_t step = StepOf(folder);
    if (step >= 0 && IsCheckpoint(folder)) result.emplace_back(step, folder);
  }
  std::sort(result.begin(), result.end());
  return result;
}

/// Where a checkpoint is built, and where one that is to go is kept until it is gone. Hidden names
/// are no checkpoints.
fs::path Writing(const fs::path& checkpoint) {
  return checkpoint.parent_path() / fmt::format(".{}.writing", checkpoint.filename().string());
}
fs::path Replaced(const fs::path& checkpoint) {
  return checkpoint.parent_path() / fmt::format(".{}.replaced", checkpoint.filename().string());
}

/// Removes what a killed process left behind.
void RemoveLeftovers(const fs::path& root) {
  std::vector<fs::path> leftovers;
  for (const fs::path& path : ListFolder(root)) {
    const std::string name = path.filename().string();
    if (name.starts_with("latest.tmp-")) leftovers.push_back(path);
    if (!name.starts_with(fmt::format(".{}", kPrefix))) continue;
    const bool replaced = name.ends_with(".replaced");
    if (!replaced && !name.ends_with(".writing")) continue;
    const fs::path checkpoint = root / path.stem().string().substr(1);
    if (replaced && IsCheckpoint(path) && !IsCheckpoint(checkpoint)) {
      // Killed between the two renames of PutInPlace: this is the newest of its step.
      fs::remove_all(checkpoint);
      fs::rename(path, checkpoint);
    } else {
      leftovers.push_back(path);
    }
  }
  for (const fs::path& leftover : leftovers)
    fs::remove_all(leftover);
}

/// Gives `written` the name `target`, whose former content is removed.
void PutInPlace(const fs::path& written, const fs::path& target) {
  if (!PathExists(target)) {
    fs::rename(written, target);
    return;
  }
  if (::renameat2(AT_FDCWD, written.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    return;
  }
  if (errno != EINVAL && errno != ENOSYS) {
    throw fs::filesystem_error("", target, std::error_code(errno, std::generic_category()));
  }
  // The file system cannot exchange names. Between these two FindCheckpoint takes the former one.
  fs::rename(target, Replaced(target));
  try {
    fs::rename(written, target);
  } catch (...) {
    std::error_code ignored;
    fs::rename(Replaced(target), target, ignored);
    throw;
  }
}

/// Removes the oldest checkpoints but for `newest` until `max_keep` are left; 0 keeps all.
void RemoveOldest(const fs::path& root, const fs::path& newest, std::int64_t max_keep) {
  if (max_keep <= 0) return;
  auto checkpoints = ListCheckpoints(root);
  std::erase_if(checkpoints, [&](const auto& entry) { return entry.second == newest; });
  const auto count = static_cast<std::int64_t>(checkpoints.size()) + 1;
  for (std::int64_t i = 0; i < count - max_keep; ++i) {
    const fs::path& old = checkpoints[static_cast<std::size_t>(i)].second;
    // Renamed first, so that a half-removed folder is never taken for a checkpoint.
    fs::rename(old, Writing(old));
    fs::remove_all(Writing(old));
  }
}

[[noreturn]] void ThrowFileError(const fs::filesystem_error& error) {
  throw Error(fmt::format("{}: {}", error.path1().string(), error.code().message()));
}

}  // namespace

fs::path OptimizerStatePath(const fs::path& folder) {
  return folder / "training" / "optimizer.safetensors";
}
fs::path Fp8StatePath(const fs::path& folder) {
  return folder / "training" / "fp8.safetensors";
}
fs::path TrainingStatePath(const fs::path& folder) {
  return folder / "training" / "state.json";
}

void SaveTrainingState(const TrainingState& state, const fs::path& folder) {
  CreateFolder(TrainingStatePath(folder).parent_path());
  if (!state.optimizer.empty()) {
    WriteSafetensors(OptimizerStatePath(folder), state.optimizer_state);
  }
  if (!state.fp8_state.empty()) WriteSafetensors(Fp8StatePath(folder), state.fp8_state);
  // Written last: a folder with state.json is complete.
  WriteFileAtomically(TrainingStatePath(folder).string(),
                      DumpStateJson(state, !state.fp8_state.empty()));
}

TrainingState LoadTrainingState(const fs::path& folder) {
  const std::string path = TrainingStatePath(folder).string();
  auto [state, has_fp8_state] = ParseStateJson(ReadFile(path), path);
  const auto load = [](const fs::path& file_path) {
    const SafetensorsFile file(file_path);
    NamedTensors tensors;
    for (const std::string& name : file.Names())
      tensors.emplace_back(name, file.Load(name));
    return tensors;
  };
  if (!state.optimizer.empty()) state.optimizer_state = load(OptimizerStatePath(folder));
  if (has_fp8_state) state.fp8_state = load(Fp8StatePath(folder));
  return state;
}

void CheckWritable(const fs::path& folder) {
  CreateFolder(folder);
  const fs::path probe = folder / ".write_probe";
  WriteFileAtomically(probe.string(), "");
  std::error_code error;
  fs::remove(probe, error);
}

CheckpointManager::CheckpointManager(fs::path root, std::int64_t max_keep)
    : root_(std::move(root)), max_keep_(max_keep) {}

fs::path CheckpointManager::Save(std::int64_t step,
                                 const std::function<void(const fs::path&)>& write) const {
  const std::string name = fmt::format("{}{:06}", kPrefix, step);
  const fs::path target = root_ / name;
  const fs::path temporary = Writing(target);
  try {
    fs::create_directories(root_);
    RemoveLeftovers(root_);
    fs::create_directory(temporary);
    write(temporary);
    PutInPlace(temporary, target);
    WriteFileAtomically((root_ / "latest").string(), name + "\n");
    fs::remove_all(temporary);
    fs::remove_all(Replaced(target));
    RemoveOldest(root_, target, max_keep_);
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    ThrowFileError(error);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  return target;
}

fs::path FindCheckpoint(const fs::path& path) {
  if (IsCheckpoint(path)) return path;
  if (PathExists(path / "latest")) {
    std::string name = ReadFile((path / "latest").string());
    name.erase(name.find_last_not_of(" \n\r\t") + 1);
    if (StepOf(name) >= 0 && name.find('/') == std::string::npos) {
      for (const fs::path& folder : {path / name, Replaced(path / name)}) {
        if (IsCheckpoint(folder)) return folder;
      }
    }
  }
  const auto checkpoints = ListCheckpoints(path);
  if (checkpoints.empty()) {
    throw Error(
        fmt::format("{}: expected a training checkpoint or a folder with {}* in it, found none",
                    path.string(), kPrefix));
  }
  return checkpoints.back().second;
}

}  // namespace infini_train::checkpoint
