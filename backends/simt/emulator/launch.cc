#include "backends/simt/emulator/launch.h"

#include <string_view>

#include <fmt/format.h>
#include <infini/rt.h>
#include <infini/rt/cpu/runtime.h>

#include "backends/simt/emulator/await.h"
#include "backends/simt/emulator/fault.h"
#include "backends/simt/emulator/grid.h"
#include "backends/simt/emulator/platform.h"
#include "backends/simt/emulator/shared_memory.h"
#include "infini_train/core/error.h"

namespace infini_train::simt {
namespace emulator {
namespace {

using Runtime = infini::rt::runtime::Runtime<infini::rt::Device::Type::kCpu>;
namespace rt = infini::rt::runtime;

constinit LaunchHooks hooks;

std::string_view NameOf(OpId op) {
  return op == OpId::kCount ? "a kernel" : GetOpInfo(op).name;
}

/// The launch as a kernel of the runtime.
rt::Error RunLaunch(const void* packet) {
  const auto& launched = *static_cast<const Launched*>(packet);
  if (hooks.begin != nullptr) hooks.begin();
  const std::optional<std::string> fault = RunGrid(launched);
  if (hooks.end != nullptr) hooks.end();
  if (fault) {
    KeepFault(fmt::format("device fault in {}: {}", NameOf(launched.op), *fault));
    return rt::kErrorLaunchFailure;
  }
  return rt::kSuccess;
}

void CheckGeometry(const Launched& launched) {
  const Geometry& geometry = launched.geometry;
  const auto check = [&](bool good, std::string_view what, std::int64_t found, std::int64_t low,
                         std::int64_t high) {
    if (good) return;
    throw Error(fmt::format("launch of {}: expected {} from {} to {}, found {}",
                            NameOf(launched.op), what, low, high, found));
  };
  const auto check_range = [&](std::string_view what, std::int64_t found, std::int64_t low,
                               std::int64_t high) {
    check(found >= low && found <= high, what, found, low, high);
  };
  check_range("grid_x", geometry.grid_x, 0, kMaxGridX);
  check_range("grid_y", geometry.grid_y, 0, kMaxGridYZ);
  check_range("grid_z", geometry.grid_z, 0, kMaxGridYZ);
  check_range("a block", geometry.block, 1, kMaxBlockSize);
  check_range("dynamic_shared_bytes", static_cast<std::int64_t>(geometry.dynamic_shared_bytes), 0,
              static_cast<std::int64_t>(SharedMemory::MaxBytes()));
}

void Check(rt::Error error, OpId op) {
  if (error == rt::kSuccess) return;
  const std::string fault = FaultMessage();
  if (!fault.empty()) throw Error(fault);
  throw Error(fmt::format("launch of {}: {}", NameOf(op), rt::GetErrorString(error)));
}

}  // namespace

void SetLaunchHooks(const LaunchHooks& new_hooks) {
  hooks = new_hooks;
}

void Enqueue(const Context& context, const Launched& packet, std::size_t bytes) {
  CheckGeometry(packet);
  const Geometry& geometry = packet.geometry;
  if (geometry.grid_x == 0 || geometry.grid_y == 0 || geometry.grid_z == 0) return;
  // The default stream is the current device's.
  int current = 0;
  Check(Runtime::GetDevice(&current), packet.op);
  const int wanted = context.device.index();
  if (current != wanted) Check(Runtime::SetDevice(wanted), packet.op);
  const auto stream = static_cast<rt::Stream>(context.stream);
  rt::Error error = Runtime::LaunchKernel(&RunLaunch, &packet, bytes, stream);
  if (error == rt::kSuccess && hooks.begin != nullptr) error = Await(stream);
  if (current != wanted) Runtime::SetDevice(current);
  Check(error, packet.op);
}

}  // namespace emulator

std::size_t MaxDynamicSharedBytes(const Context&) {
  constexpr std::size_t kOther = 2048;
  return emulator::SharedMemory::MaxBytes() - kOther;
}

}  // namespace infini_train::simt
