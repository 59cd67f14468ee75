#include "infini_train/ops/kernel_library.h"

namespace infini_train {
namespace {

using NameFunction = std::string (*)();

// Constant-initialised, so that it is ready for file-scope registrations in any order.
constinit NameFunction names[kNumDeviceTypes][kNumOps] = {};

}  // namespace

std::string KernelLibrary(DeviceType type, OpId id) {
  const NameFunction name = names[static_cast<int>(type)][static_cast<int>(id)];
  return name == nullptr ? "" : name();
}

namespace detail {

KernelLibraryRegistrar::KernelLibraryRegistrar(DeviceType type, OpId id,
                                               std::string (*name)()) noexcept {
  names[static_cast<int>(type)][static_cast<int>(id)] = name;
}

}  // namespace detail
}  // namespace infini_train
