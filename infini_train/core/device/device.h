#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "infini_train/core/api.h"

namespace infini_train {

/// Kinds of device. Accelerators other than CUDA share kPrivateUse1: one process registers at most
/// one such provider (private_use1.h).
enum class DeviceType : std::uint8_t { kCPU, kCUDA, kPrivateUse1 };

inline constexpr int kNumDeviceTypes = 3;

/// Where a tensor lives: a kind of device and an index. Printed and parsed as `cpu`, `cuda:1` or,
/// for kPrivateUse1, by the registered provider's name.
class INFINI_TRAIN_API Device {
 public:
  Device() = default;
  Device(DeviceType type, int index = 0) : type_(type), index_(index) {}  // NOLINT

  /// Parses `name` (index 0) or `name:index`; `privateuse1` names the registered provider too. The
  /// name must match exactly. Throws Error when the text is malformed, the name is unknown, or the
  /// index is not below the number of devices of a provider that is present.
  static Device Parse(std::string_view text);
  /// Parses the name alone.
  static DeviceType ParseType(std::string_view name);

  DeviceType type() const { return type_; }
  int index() const { return index_; }
  bool is_cpu() const { return type_ == DeviceType::kCPU; }

  /// "cpu" for the CPU, else "name:index".
  std::string ToString() const;

  bool operator==(const Device&) const = default;

 private:
  DeviceType type_ = DeviceType::kCPU;
  int index_ = 0;
};

/// The name of a kind of device: "cpu", "cuda", or the registered provider's name ("privateuse1"
/// before a registration).
INFINI_TRAIN_API std::string ToString(DeviceType type);

}  // namespace infini_train

template <>
struct std::hash<infini_train::Device> {
  std::size_t operator()(const infini_train::Device& device) const noexcept {
    return static_cast<std::size_t>(device.type()) << 16 ^ static_cast<std::size_t>(device.index());
  }
};
