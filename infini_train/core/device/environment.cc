#include "infini_train/core/device/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "infini_train/core/error.h"

namespace infini_train {

std::optional<std::string> GetEnvironment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<bool> GetEnvironmentSwitch(const char* name) {
  const std::optional<std::string> text = GetEnvironment(name);
  if (!text) return std::nullopt;
  if (*text == "0" || *text == "1") return *text == "1";
  throw Error(fmt::format("{}: expected 0 or 1, got '{}'", name, *text));
}

std::optional<std::int64_t> GetEnvironmentInteger(const char* name, std::int64_t least,
                                                  std::int64_t most) {
  const std::optional<std::string> text = GetEnvironment(name);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const char* const end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || rest != end || value < least || value > most) {
    throw Error(
        fmt::format("{}: expected an integer from {} to {}, got '{}'", name, least, most, *text));
  }
  return value;
}

}  // namespace infini_train
