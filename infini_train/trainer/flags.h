#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "infini_train/trainer/options.h"

namespace CLI {
class App;
}

namespace infini_train::trainer {

/// The flags of one command, bound to the fields of an options struct. `name` may list an alias
/// after a comma. Help that ends in "1 only" (or "0 only", "false only") says that the flag takes
/// no other value: scripts/model_runs counts what needs one as pending.
class Flags {
 public:
  Flags(const std::string& program, const std::string& description);
  ~Flags();

  void Add(const std::string& name, std::string& value, const std::string& help);
  void Add(const std::string& name, int& value, const std::string& help);
  void Add(const std::string& name, std::int64_t& value, const std::string& help);
  void Add(const std::string& name, std::uint64_t& value, const std::string& help);
  void Add(const std::string& name, double& value, const std::string& help);
  void Add(const std::string& name, bool& value, const std::string& help);
  /// Repeats of the flag add to the list.
  void Add(const std::string& name, std::vector<std::string>& value, const std::string& help);
  /// Arguments without a flag.
  void AddPositional(const std::string& name, std::vector<std::string>& value,
                     const std::string& help);
  void AddPositional(const std::string& name, std::string& value, const std::string& help);
  /// Heading of the flags that follow, in the help.
  void Section(const std::string& title) { section_ = title; }

  CLI::App& app() { return *app_; }
  const std::set<std::string>& booleans() const { return booleans_; }

 private:
  template <typename T>
  void AddValue(const std::string& name, T& value, const std::string& help);

  std::unique_ptr<CLI::App> app_;
  std::set<std::string> booleans_;
  std::string section_;
};

void AddTrainFlags(Flags& flags, TrainOptions& options);
void AddTokenizeFlags(Flags& flags, TokenizeCommandOptions& options);
void AddGenerateFlags(Flags& flags, GenerateOptions& options);
void AddEvaluateFlags(Flags& flags, EvaluateOptions& options);
void AddExportFlags(Flags& flags, ExportOptions& options);
void AddInfoFlags(Flags& flags, InfoOptions& options);
void AddConformanceFlags(Flags& flags, ConformanceOptions& options);

}  // namespace infini_train::trainer
