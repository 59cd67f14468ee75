#include "infini_train/parallel/ccl.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <mutex>

#include "infini_train/core/error.h"
#include "infini_train/parallel/in_process_ccl.h"

namespace infini_train::parallel {
namespace {

/// The collectives of a kind of device; never destroyed, as runtimes are not.
struct Slot {
  std::mutex mutex;
  std::atomic<Ccl*> ccl{nullptr};
  std::atomic<detail::CclFactory> factory{nullptr};
  const char* file = nullptr;
  int line = 0;
};

/// Constant-initialised: registrars of other files may run first.
constinit std::array<Slot, kNumDeviceTypes> slots;

Slot& SlotOf(DeviceType type) {
  return slots[static_cast<std::size_t>(type)];
}

}  // namespace

std::string_view ToString(ReduceOp op) {
  constexpr std::string_view kNames[] = {"sum", "product", "min", "max", "average"};
  return kNames[static_cast<int>(op)];
}

Ccl& GetCcl(DeviceType type) {
  Slot& slot = SlotOf(type);
  if (Ccl* ccl = slot.ccl.load(std::memory_order_acquire)) return *ccl;
  const detail::CclFactory factory = slot.factory.load(std::memory_order_acquire);
  if (factory == nullptr) return InProcessCcl();
  const std::lock_guard lock(slot.mutex);
  if (Ccl* ccl = slot.ccl.load(std::memory_order_relaxed)) return *ccl;
  slot.ccl.store(factory().release(), std::memory_order_release);
  return *slot.ccl.load(std::memory_order_relaxed);
}

bool HasCcl(DeviceType type) noexcept {
  return SlotOf(type).factory.load(std::memory_order_acquire) != nullptr;
}

detail::CclRegistrar::CclRegistrar(DeviceType type, CclFactory factory, const char* file,
                                   int line) {
  Slot& slot = SlotOf(type);
  const std::lock_guard lock(slot.mutex);
  if (slot.factory.load(std::memory_order_relaxed) != nullptr) {
    throw Error(fmt::format("two collectives are registered for {}: at {}:{} and at {}:{}",
                            ToString(type), slot.file, slot.line, file, line));
  }
  slot.file = file;
  slot.line = line;
  slot.factory.store(factory, std::memory_order_release);
}

}  // namespace infini_train::parallel
