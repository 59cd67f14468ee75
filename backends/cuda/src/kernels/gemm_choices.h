#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/gemm_problem.h"

namespace infini_train::cuda {

/// The algorithms that were found for problems, kept in a text file, so that a process needs not
/// look for them again and computes what the one before did.
///
/// The file is named by the environment's INFINI_TRAIN_GEMM_CACHE (empty: there is none), or is
/// $XDG_CACHE_HOME/infini_train/gemm.txt or ~/.cache/infini_train/gemm.txt. It is read once, on
/// first use. Lines hold the device's name, the library's version, the problem and the algorithm,
/// separated by tabs. A file of another kind is left alone, with a warning, as if there were none;
/// damaged lines are dropped, with a warning.
class GemmChoices {
 public:
  /// The process's.
  static GemmChoices& Get();

  /// With a file of one's own; none where the path is empty.
  explicit GemmChoices(std::string path);

  /// Whether choices are kept for other processes.
  bool has_file() const;

  std::optional<cublasLtMatmulAlgo_t> Find(const std::string& device,
                                           const GemmProblem::Key& problem) const;

  /// Remembers an algorithm, and returns the one to use: the first that was remembered for the
  /// problem on a device of this name.
  cublasLtMatmulAlgo_t Keep(const std::string& device, const GemmProblem::Key& problem,
                            const cublasLtMatmulAlgo_t& algorithm);

  /// Forgets an algorithm that the library does not take.
  void Drop(const std::string& device, const GemmProblem::Key& problem);

 private:
  /// What precedes the algorithm on a line, and the rest of it.
  using Lines = std::map<std::string, std::string>;

  void Load();
  void Save();
  void GiveUp(const std::string& why);

  mutable std::mutex mutex_;
  std::string path_;  // empty: none
  bool warned_of_damage_ = false;
  Lines lines_;
};

}  // namespace infini_train::cuda
