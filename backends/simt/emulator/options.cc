#include "backends/simt/emulator/options.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "backends/simt/emulator/lane.h"
#include "infini_train/core/device/environment.h"
#include "infini_train/core/error.h"

namespace infini_train::simt {
namespace emulator {
namespace {

constexpr int kMaxThreads = 256;

int ReadThreads() {
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  return static_cast<int>(GetEnvironmentInteger("INFINITRAIN_SIM_THREADS", 1, kMaxThreads)
                              .value_or(std::clamp(processors, 1, kMaxThreads)));
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
  const std::string warp_size = GetEnvironment("INFINITRAIN_SIM_WARP_SIZE").value_or("32");
  if (warp_size == "64") {
    options.warp_size = 64;
  } else if (warp_size != "32") {
    throw Error(fmt::format("INFINITRAIN_SIM_WARP_SIZE: expected 32 or 64, found '{}'", warp_size));
  }
  options.threads = ReadThreads();
  if (const auto checks = GetEnvironment("INFINITRAIN_SIM_CHECK")) ReadChecks(*checks, options);
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
