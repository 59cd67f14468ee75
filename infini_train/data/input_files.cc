#include "infini_train/data/input_files.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <system_error>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"

namespace infini_train {
namespace {

namespace fs = std::filesystem;

void AppendMatches(const std::string& pattern, std::string_view what,
                   std::vector<std::string>& files) {
  glob_t matches{};
  const int result = ::glob(pattern.c_str(), 0, nullptr, &matches);
  if (result == 0) files.insert(files.end(), matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  if (result == GLOB_NOMATCH) {
    throw Error(
        fmt::format("{}: expected {}, found no file of that name or pattern", pattern, what));
  }
  if (result != 0) throw Error(fmt::format("{}: cannot list the files of this pattern", pattern));
}

bool IsHidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

}  // namespace

std::vector<std::string> ExpandFiles(const std::vector<std::string>& patterns,
                                     std::string_view what) {
  if (patterns.empty()) throw Error(fmt::format("expected the names of {}, found none", what));
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    if (PathExists(pattern)) {
      files.push_back(pattern);
    } else {
      AppendMatches(pattern, what, files);
    }
  }
  return files;
}

std::vector<std::string> FilesBelow(const std::string& folder, const fs::path& excluded) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const bool is_folder = entry->is_directory(error) && !entry->is_symlink(error);
    if (IsHidden(entry->path()) ||
        (is_folder && !excluded.empty() && fs::weakly_canonical(entry->path()) == excluded)) {
      if (is_folder) entry.disable_recursion_pending();
    } else if (entry->is_regular_file(error)) {
      files.push_back(entry->path().string());
    }
    error.clear();  // a link to nothing is no reason to stop
  }
  if (error) throw Error(fmt::format("{}: cannot list the folder: {}", folder, error.message()));
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace infini_train
