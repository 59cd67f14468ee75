#include "backends/simt/emulator/fault.h"

#include <mutex>
#include <string_view>

#include <fmt/format.h>

#include "backends/simt/emulator/memory.h"
#include "backends/simt/emulator/platform.h"

namespace infini_train::simt::emulator {
namespace {

struct KeptFault {
  std::mutex mutex;
  std::string message;
};
KeptFault& TheFault() {
  static auto* fault = new KeptFault;  // Streams' threads may outlive the end of main().
  return *fault;
}

/// The kernel's name without result, parameters and namespaces of the dialect.
std::string_view KernelName(std::string_view function) {
  int depth = 0;
  std::size_t end = function.size();
  for (std::size_t i = 0; i < function.size(); ++i) {
    if (function[i] == '<') ++depth;
    if (function[i] == '>') --depth;
    if (function[i] == '(' && depth == 0 && !function.substr(i).starts_with("(anonymous")) {
      end = i;
      break;
    }
  }
  std::string_view name = function.substr(0, end);
  depth = 0;
  for (std::size_t i = name.size(); i > 0; --i) {
    const char c = name[i - 1];
    if (c == '>') ++depth;
    if (c == '<') --depth;
    if (depth == 0 && (c == ' ' || c == ':' || c == '*' || c == '&')) return name.substr(i);
  }
  return name;
}

}  // namespace

std::string ToString(const std::source_location& place) {
  std::string_view file = place.file_name();
  std::size_t slash = file.rfind('/');
  if (slash != std::string_view::npos && slash > 0) slash = file.rfind('/', slash - 1);
  if (slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return fmt::format("{}:{}", file, place.line());
}

std::string DescribeFault(const std::string& what, const std::source_location& place) {
  return fmt::format("{} [{}, block ({}, {}, {}), lane {}, {}]", what,
                     KernelName(place.function_name()), lane.block[0], lane.block[1], lane.block[2],
                     lane.thread, ToString(place));
}

void ThrowFault(const std::string& what, const std::source_location& place) {
  throw LaneFault{DescribeFault(what, place)};
}

std::string FaultMessage() {
  KeptFault& fault = TheFault();
  const std::lock_guard lock(fault.mutex);
  return fault.message;
}

void KeepFault(const std::string& message) {
  KeptFault& fault = TheFault();
  const std::lock_guard lock(fault.mutex);
  if (fault.message.empty()) fault.message = message;
}

void ThrowBadAddress(const void* address, std::size_t alignment, const Place& place) {
  if (address == nullptr) ThrowFault("access to global memory through a null pointer", place);
  ThrowFault(fmt::format("misaligned access to global memory: address {} is no multiple of {}",
                         address, alignment),
             place);
}

}  // namespace infini_train::simt::emulator
