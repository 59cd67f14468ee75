#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <infini/rt/export.h>

namespace infini::rt {

/// A device: which runtime it belongs to, and its index there.
class Device {
 public:
  /// The runtimes. The numbers are stable and appear in no file format but may cross a C API.
  enum class Type : std::uint8_t {
    kCpu = 0,
    kNvidia = 1,
    kCambricon = 2,
    kAscend = 3,
    kMetax = 4,
    kMoore = 5,
    kIluvatar = 6,
    kCount = 7,
  };

  constexpr Device() = default;
  constexpr Device(Type type, int index = 0) : type_(type), index_(index) {}

  constexpr Type type() const { return type_; }
  constexpr int index() const { return index_; }

  /// "<type>:<index>", for example "nvidia:1".
  INFINI_RT_API std::string ToString() const;

  /// Parses "<type>" (index 0) or "<type>:<index>" in lower case; the index is a decimal number
  /// without sign. Anything else gives `std::nullopt`.
  INFINI_RT_API static std::optional<Device> FromString(std::string_view text);

  /// The lower-case name of a type: "cpu", "nvidia", ...; "unknown" for a value outside the enum.
  INFINI_RT_API static std::string_view StringFromType(Type type);

  /// The type with exactly this name, or `std::nullopt`.
  INFINI_RT_API static std::optional<Type> TypeFromString(std::string_view name);

  friend constexpr bool operator==(const Device&, const Device&) = default;

 private:
  Type type_ = Type::kCpu;
  int index_ = 0;
};

}  // namespace infini::rt

template <>
struct std::hash<infini::rt::Device> {
  std::size_t operator()(const infini::rt::Device& device) const noexcept {
    return std::hash<std::uint64_t>{}(static_cast<std::uint64_t>(device.type()) << 32 |
                                      static_cast<std::uint32_t>(device.index()));
  }
};
