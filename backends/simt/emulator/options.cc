#include "backends/simt/emulator/options.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "backends/simt/emulator/lane.h"
#include "infini_train/core/error.h"

namespace infini_train::simt {
namespace emulator {
namespace {

constexpr int kMaxThreads = 256;

/// The value of an environment variable; empty where it is not set.
std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

int ReadThreads() {
  const std::string_view text = Environment("INFINITRAIN_SIM_THREADS");
  if (text.empty()) {
    const int found = static_cast<int>(std::thread::hardware_concurrency());
    return found < 1 ? 1 : found > kMaxThreads ? kMaxThreads : found;
  }
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc() || end != text.data() + text.size() || threads < 1 ||
      threads > kMaxThreads) {
    throw Error(fmt::format("INFINITRAIN_SIM_THREADS: expected a number from 1 to {}, found '{}'",
                            kMaxThreads, text));
  }
  return threads;
}

void ReadChecks(std::string_view text, Options& options) {
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view check = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    if (check == "race") {
      options.check_races = true;
    } else if (check == "memory") {
      options.check_memory = true;
    } else {
      throw Error(fmt::format(
          "INFINITRAIN_SIM_CHECK: expected a list of 'race' and 'memory', found '{}'", check));
    }
  }
}

Options ReadEnvironment() {
  Options options;
  const std::string_view warp_size = Environment("INFINITRAIN_SIM_WARP_SIZE");
  if (warp_size == "64") {
    options.warp_size = 64;
  } else if (!warp_size.empty() && warp_size != "32") {
    throw Error(fmt::format("INFINITRAIN_SIM_WARP_SIZE: expected 32 or 64, found '{}'", warp_size));
  }
  options.threads = ReadThreads();
  ReadChecks(Environment("INFINITRAIN_SIM_CHECK"), options);
  return options;
}

Options& MutableOptions() {
  static Options options = ReadEnvironment();
  return options;
}

}  // namespace

const Options& GetOptions() {
  return MutableOptions();
}

void SetOptions(const Options& options) {
  MutableOptions() = options;
}

}  // namespace emulator

int WarpSize() {
  return emulator::GetOptions().warp_size;
}

}  // namespace infini_train::simt
