#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/dims.h"
#include "infini_train/core/dtype.h"

namespace infini_train::checkpoint {

class SafetensorsFile;
class SafetensorsFolder;

/// The tensors of a file or folder beside those that are expected there: notes what is wrong with
/// them, to say all of it at once.
class INFINI_TRAIN_API TensorChecklist {
 public:
  explicit TensorChecklist(const SafetensorsFile& file);
  explicit TensorChecklist(const SafetensorsFolder& folder);

  bool Contains(const std::string& name) const { return found_.contains(name); }
  /// Whether the name of any tensor starts with `prefix`.
  bool ContainsPrefix(const std::string& prefix) const;

  /// Whether there is a tensor of that name, of this shape and of a floating type; notes what is
  /// wrong with it.
  bool Expect(const std::string& name, const Dims& shape);

  /// Throws Error if anything is wrong, or tensors are there that are neither expected nor
  /// ignorable: "PATH does not fit WHAT; missing: ...; unexpected: ...", with all names.
  void ThrowIfWrong(std::string_view what,
                    const std::function<bool(std::string_view)>& is_ignorable = {}) const;

 private:
  struct Entry {
    DataType dtype;
    Dims shape;
  };
  template <typename Files>
  void Read(const Files& files);

  std::string path_;
  std::map<std::string, Entry> found_;
  std::set<std::string> expected_;
  std::vector<std::string> missing_, misshapen_, mistyped_;
};

/// All of the names, separated by commas. Those that differ in one number between dots are put
/// together: "h.{0-2,5}.ln_1.weight, ln_f.weight". What follows a name behind a space is part of
/// it.
INFINI_TRAIN_API std::string JoinNames(std::vector<std::string> names);

}  // namespace infini_train::checkpoint
