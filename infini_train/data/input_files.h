#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/core/api.h"

namespace infini_train {

/// The files that `patterns` name: each is a file or a glob pattern (`data/train_*.bin`, as in
/// glob(3)), and what a pattern matches is sorted by name. Throws Error if one matches nothing, or
/// if there are none; `what` says there what was expected ("token files").
INFINI_TRAIN_API std::vector<std::string> ExpandFiles(const std::vector<std::string>& patterns,
                                                      std::string_view what);

/// Regular files below a folder, sorted by path, without hidden ones and without those below
/// `excluded`. Throws Error if it cannot be listed.
std::vector<std::string> FilesBelow(const std::string& folder,
                                    const std::filesystem::path& excluded = {});

}  // namespace infini_train
