#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "infini_train/core/dims.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/tensor.h"

namespace infini_train {

/// Tensors that were found beside those that are expected: notes what is wrong with them, to say
/// all of it at once.
class TensorChecklist {
 public:
  /// `source` is where they are, for the message. Of several tensors of a name the first counts.
  TensorChecklist(std::string source, const NamedTensors& found);

  /// Of a file, or whatever has path(), Names(), dtype(name) and shape(name).
  template <typename Files>
  static TensorChecklist Of(const Files& files) {
    TensorChecklist checklist(files.path());
    for (const std::string& name : files.Names())
      checklist.AddFound(name, files.dtype(name), files.shape(name));
    return checklist;
  }

  bool Contains(const std::string& name) const { return found_.contains(name); }
  /// Whether the name of any tensor starts with `prefix`.
  bool ContainsPrefix(const std::string& prefix) const;

  /// Whether there is a tensor of that name and shape, of any type, a floating one or `dtype`;
  /// notes what is wrong with it.
  bool Expect(const std::string& name, const Dims& shape);
  bool ExpectFloating(const std::string& name, const Dims& shape);
  bool ExpectType(const std::string& name, const Dims& shape, DataType dtype);
  /// Notes that the elements of a tensor are not what they should be.
  void NoteValues(const std::string& name, std::string_view expected, double found);

  /// Throws Error if anything is wrong, or tensors are there that are neither expected nor
  /// ignorable: "SOURCE does not fit WHAT; missing: ...; unexpected: ...", with all names.
  void ThrowIfWrong(std::string_view what,
                    const std::function<bool(std::string_view)>& is_ignorable = {}) const;

 private:
  explicit TensorChecklist(std::string source) : source_(std::move(source)) {}
  void AddFound(const std::string& name, DataType dtype, const Dims& shape);

  struct Entry {
    DataType dtype;
    Dims shape;
  };

  std::string source_;
  std::map<std::string, Entry> found_;
  std::set<std::string> expected_;
  std::vector<std::string> missing_, misshapen_, mistyped_, misvalued_;
};

/// All of the names, separated by commas. Those that differ in one number between dots are put
/// together: "h.{0-2,5}.ln_1.weight, ln_f.weight". What follows a name behind a space is part of
/// it.
std::string JoinNames(std::vector<std::string> names);

}  // namespace infini_train
