#include "infini_train/core/device/device.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/device/private_use1.h"
#include "infini_train/core/error.h"

namespace infini_train {
namespace {

constexpr std::string_view kPrivateUse1Name = "privateuse1";

std::optional<std::string> PrivateUse1ProviderName() {
  if (!core::HasPrivateUse1Backend()) return std::nullopt;
  return core::GetPrivateUse1Backend().name;
}

/// A non-negative decimal number without sign, blanks or leading zeros.
std::optional<int> ParseIndex(std::string_view digits) {
  if (digits.size() > 1 && digits.front() == '0') return std::nullopt;
  if (digits.empty() || digits.front() == '-') return std::nullopt;
  int index = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (status != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return index;
}

}  // namespace

Device Device::Parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const DeviceType type = ParseType(text.substr(0, colon));
  int index = 0;
  if (colon != std::string_view::npos) {
    const std::optional<int> parsed = ParseIndex(text.substr(colon + 1));
    if (!parsed) {
      throw Error(
          fmt::format("'{}' is no device; expected '{}' or '{}:' and an index, as in '{}:0'", text,
                      infini_train::ToString(type), infini_train::ToString(type),
                      infini_train::ToString(type)));
    }
    index = *parsed;
  }
  if (HasDeviceGuardImpl(type)) {
    const int count = GetDeviceGuardImpl(type).DeviceCount();
    if (index >= count) {
      throw Error(fmt::format("device '{}' does not exist: there {} {} {} device{}", text,
                              count == 1 ? "is" : "are", count, infini_train::ToString(type),
                              count == 1 ? "" : "s"));
    }
  }
  return {type, index};
}

DeviceType Device::ParseType(std::string_view name) {
  if (name == "cpu") return DeviceType::kCPU;
  if (name == "cuda") return DeviceType::kCUDA;
  const std::optional<std::string> provider = PrivateUse1ProviderName();
  if (provider && (name == *provider || name == kPrivateUse1Name)) return DeviceType::kPrivateUse1;
  if (name == kPrivateUse1Name) {
    throw Error("'privateuse1' names the registered accelerator provider, but none is registered");
  }
  throw Error(fmt::format("'{}' is no kind of device; expected {}", name,
                          provider ? fmt::format("cpu, cuda or {}", *provider) : "cpu or cuda"));
}

std::string Device::ToString() const {
  if (is_cpu()) return "cpu";
  return fmt::format("{}:{}", infini_train::ToString(type_), index_);
}

std::string ToString(DeviceType type) {
  switch (type) {
    case DeviceType::kCPU:
      return "cpu";
    case DeviceType::kCUDA:
      return "cuda";
    case DeviceType::kPrivateUse1:
      break;
  }
  return PrivateUse1ProviderName().value_or(std::string(kPrivateUse1Name));
}

}  // namespace infini_train
