#include <infini/rt/device.h>

#include <array>
#include <charconv>

namespace infini::rt {
namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(Device::Type::kCount)> kNames = {
    "cpu", "nvidia", "cambricon", "ascend", "metax", "moore", "iluvatar"};

}  // namespace

std::string_view Device::StringFromType(Type type) {
  auto position = static_cast<std::size_t>(type);
  return position < kNames.size() ? kNames[position] : "unknown";
}

std::optional<Device::Type> Device::TypeFromString(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Type>(i);
  }
  return std::nullopt;
}

std::string Device::ToString() const {
  return std::string(StringFromType(type_)) + ":" + std::to_string(index_);
}

std::optional<Device> Device::FromString(std::string_view text) {
  auto colon = text.find(':');
  auto type = TypeFromString(text.substr(0, colon));
  if (!type) return std::nullopt;
  if (colon == std::string_view::npos) return Device(*type);
  std::string_view digits = text.substr(colon + 1);
  if (digits.empty() || digits.front() < '0' || digits.front() > '9') return std::nullopt;
  int index = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return Device(*type, index);
}

}  // namespace infini::rt
