#include "infini_train/trainer/cli.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <numeric>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "infini_train/core/error.h"
#include "infini_train/trainer/commands.h"
#include "infini_train/trainer/flags.h"
#include "infini_train/trainer/trainer.h"

namespace infini_train::trainer {
namespace {

/// Number of single-character edits between two words.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

/// The name that a word was most likely meant to be: one that begins with it, or the one of the
/// fewest edits. None where half of it would be wrong.
template <typename Names>
std::optional<std::string> Nearest(const Names& names, std::string_view word) {
  const auto distance = [word](const std::string& name) {
    constexpr std::size_t kLeastBeginning = 3;
    const bool begins = word.size() >= kLeastBeginning && name.starts_with(word);
    return std::pair(!begins, EditDistance(name, word));
  };
  const auto nearest =
      std::min_element(names.begin(), names.end(),
                       [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  if (nearest == names.end()) return std::nullopt;
  const auto [is_other, edits] = distance(*nearest);
  if (is_other && 2 * edits >= std::max(nearest->size(), word.size())) return std::nullopt;
  return *nearest;
}

std::optional<bool> ParseBoolean(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* yes : {"true", "t", "1", "yes", "y", "on"})
    if (word == yes) return true;
  for (const char* no : {"false", "f", "0", "no", "n", "off"})
    if (word == no) return false;
  return std::nullopt;
}

/// Rewrites the arguments of a command to what CLI11 understands: `-name`, `--some-name`,
/// `--noname` and `--name False` become `--name` and `--name=false`. Throws Error on a flag that
/// the command does not have. Nothing after `--` is a flag.
std::vector<std::string> NormalizeArguments(const std::vector<std::string>& arguments,
                                            const CLI::App& app,
                                            const std::set<std::string>& booleans) {
  std::set<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames())
      names.insert(name);
  }
  std::vector<std::string> result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      result.insert(result.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i),
                    arguments.end());
      break;
    }
    const std::size_t dashes = argument.starts_with("--") ? 2 : argument.starts_with("-") ? 1 : 0;
    const bool is_flag = dashes > 0 && argument.size() > dashes &&
                         (std::isalpha(static_cast<unsigned char>(argument[dashes])) != 0);
    if (!is_flag) {
      result.push_back(argument);
      continue;
    }
    const std::size_t equals = argument.find('=');
    std::string name =
        argument.substr(dashes, equals == std::string::npos ? equals : equals - dashes);
    std::replace(name.begin(), name.end(), '-', '_');
    std::string value = equals == std::string::npos ? "" : argument.substr(equals);
    if (name == "h") name = "help";
    if (!names.contains(name) && name.starts_with("no") && booleans.contains(name.substr(2)) &&
        value.empty()) {
      name = name.substr(2);
      value = "=false";
    } else if (booleans.contains(name) && value.empty() && i + 1 < arguments.size() &&
               ParseBoolean(arguments[i + 1])) {
      value = "=" + arguments[++i];
    }
    if (booleans.contains(name) && !value.empty()) {
      const std::optional<bool> parsed = ParseBoolean(value.substr(1));
      if (!parsed) {
        throw Error(fmt::format("{}: expected true or false, got {}", name, value.substr(1)));
      }
      value = *parsed ? "=true" : "=false";
    }
    if (!names.contains(name)) {
      const std::optional<std::string> nearest = Nearest(names, name);
      throw Error(fmt::format("unknown flag --{}; {}", name,
                              nearest ? "the nearest is --" + *nearest : "--help lists them"));
    }
    if (value.empty() && !booleans.contains(name) && name != "help") {
      if (i + 1 == arguments.size()) {
        throw Error(fmt::format("{}: expected a value, got none", name));
      }
      const std::string& next = arguments[++i];
      const std::string next_name =
          next.starts_with("--") ? next.substr(2, next.find('=') - 2) : "";
      if (names.contains(next_name)) {
        throw Error(fmt::format("{}: expected a value, got the flag {}", name, next));
      }
      value = "=" + next;
    }
    if (value == "=") {
      if (app.get_option("--" + name)->get_type_name() != "TEXT") {
        throw Error(fmt::format("{}: expected a number, got an empty text", name));
      }
      // CLI11 takes `--name=` for a flag without a value.
      result.insert(result.end(), {"--" + name, ""});
      continue;
    }
    result.push_back("--" + name + value);
  }
  return result;
}

/// Parses a command's arguments; false when help was asked for and printed.
bool Parse(Flags& flags, const std::vector<std::string>& arguments) {
  std::vector<std::string> normalized =
      NormalizeArguments(arguments, flags.app(), flags.booleans());
  std::reverse(normalized.begin(), normalized.end());
  try {
    flags.app().parse(normalized);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", flags.app().help());
    return false;
  } catch (const CLI::ExtrasError&) {
    throw Error(fmt::format("unexpected argument '{}'", flags.app().remaining().front()));
  } catch (const CLI::ParseError& error) {
    const std::string message = error.what();
    throw Error(message.substr(std::min(message.find_first_not_of('-'), message.size())));
  }
  return true;
}

int RunTrain(const std::string& program, const std::vector<std::string>& arguments,
             TrainOptions options) {
  Flags flags(program, "Trains a model on token files.");
  AddTrainFlags(flags, options);
  return Parse(flags, arguments) ? Train(options, stdout) : 0;
}

/// A command that returns nothing has succeeded unless it throws.
template <typename Options, typename Result>
int RunCommand(const std::string& program, const std::string& description,
               const std::vector<std::string>& arguments, void (*add_flags)(Flags&, Options&),
               Result (*command)(const Options&, std::FILE*)) {
  Options options;
  Flags flags(program, description);
  add_flags(flags, options);
  if (!Parse(flags, arguments)) return 0;
  if constexpr (std::is_void_v<Result>) {
    command(options, stdout);
    return 0;
  } else {
    return command(options, stdout);
  }
}

struct Command {
  std::string name;
  std::string description;
  int (*run)(const std::string& program, const std::string& description,
             const std::vector<std::string>& arguments);
};

const std::vector<Command>& Commands() {
  using Arguments = std::vector<std::string>;
  static const std::vector<Command> commands = {
      {"tokenize", "Turns text files and folders into token shards.",
       [](const std::string& program, const std::string& description, const Arguments& arguments) {
         return RunCommand(program, description, arguments, &AddTokenizeFlags, &TokenizeCommand);
       }},
      {"train", "Trains a model on token files.",
       [](const std::string& program, const std::string&, const Arguments& arguments) {
         return RunTrain(program, arguments, {});
       }},
      {"generate", "Continues prompts with a trained model.",
       [](const std::string& program, const std::string& description, const Arguments& arguments) {
         return RunCommand(program, description, arguments, &AddGenerateFlags, &GenerateCommand);
       }},
      {"evaluate", "Measures loss and perplexity of a model over token files.",
       [](const std::string& program, const std::string& description, const Arguments& arguments) {
         return RunCommand(program, description, arguments, &AddEvaluateFlags, &EvaluateCommand);
       }},
      {"export", "Writes a model in another format.",
       [](const std::string& program, const std::string& description, const Arguments& arguments) {
         return RunCommand(program, description, arguments, &AddExportFlags, &ExportCommand);
       }},
      {"info", "Describes this build, or a model, adapters, checkpoint or token file.",
       [](const std::string& program, const std::string& description, const Arguments& arguments) {
         return RunCommand(program, description, arguments, &AddInfoFlags, &InfoCommand);
       }},
      {"conformance", "Checks every op of a device against float64, and its speed.",
       [](const std::string& program, const std::string& description, const Arguments& arguments) {
         return RunCommand(program, description, arguments, &AddConformanceFlags,
                           &ConformanceCommand);
       }}};
  return commands;
}

std::string Usage() {
  std::string text = "Usage: infini-train COMMAND [FLAGS]\n\nCommands:\n";
  for (const Command& command : Commands()) {
    text += fmt::format("  {:<11} {}\n", command.name, command.description);
  }
  return text +
         "\ninfini-train COMMAND --help lists the flags of a command, --version the version.\n";
}

/// Prints what the library throws as one line.
template <typename Body>
int Guard(const char* program, Body body) {
  std::string message;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    message = "out of host memory";
  } catch (const std::exception& error) {
    message = error.what();
  }
  std::fflush(stdout);
  // Names in files may hold what ends a line or moves a terminal's cursor.
  std::replace_if(
      message.begin(), message.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  fmt::print(stderr, "{}: {}\n", program, message);
  return 2;
}

}  // namespace

int InfiniTrainMain(int argc, char** argv) {
  return Guard("infini-train", [&] {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
        arguments[0] == "help") {
      fmt::print("{}", Usage());
      return arguments.empty() ? 2 : 0;
    }
    if (arguments[0] == "--version") {
      fmt::print("InfiniTrain {}\n", INFINI_TRAIN_VERSION);
      return 0;
    }
    std::vector<std::string> names;
    for (const Command& command : Commands()) {
      if (command.name == arguments[0]) {
        return command.run("infini-train " + command.name, command.description,
                           {arguments.begin() + 1, arguments.end()});
      }
      names.push_back(command.name);
    }
    const std::optional<std::string> nearest = Nearest(names, arguments[0]);
    throw Error(fmt::format("unknown command '{}'; {}", arguments[0],
                            nearest ? "the nearest is " + *nearest
                                    : fmt::format("expected one of {}", fmt::join(names, ", "))));
  });
}

int ModelMain(int argc, char** argv, const TrainOptions& defaults) {
  const char* program = defaults.default_model.c_str();
  return Guard(program, [&] { return RunTrain(program, {argv + 1, argv + argc}, defaults); });
}

}  // namespace infini_train::trainer
