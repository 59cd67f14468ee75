#include "launch.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include <infini/rt/cpu/runtime.h>
#include <infini/rt/last_error.h>

#include "backends/simt/emulator/await.h"
#include "backends/simt/emulator/fault.h"
#include "backends/simt/emulator/grid.h"
#include "backends/simt/emulator/options.h"
#include "metax/sdk.h"

namespace {

namespace emulator = infini_train::simt::emulator;
namespace rt = infini::rt::runtime;
using Runtime = rt::Runtime<infini::rt::Device::Type::kCpu>;

/// A launch, in front of the arguments that the kernel's packet holds.
struct alignas(16) Launch : emulator::Launched {
  void (*run)(const void* packet);
};

void RunLane(const emulator::Launched* launched) {
  const auto* launch = static_cast<const Launch*>(launched);
  launch->run(launch + 1);
}

rt::Error RunGrid(const void* arguments) {
  const std::optional<std::string> fault =
      emulator::RunGrid(*static_cast<const Launch*>(arguments));
  if (!fault) return rt::kSuccess;
  emulator::KeepFault("device fault: " + *fault);
  return rt::kErrorLaunchFailure;
}

bool IsValid(const unsigned int* grid, const unsigned int* block, std::size_t shared) {
  return grid[0] > 0 && grid[1] > 0 && grid[2] > 0 && block[0] > 0 && block[0] <= 1024 &&
         grid[1] <= 65535 && grid[2] <= 65535 && block[1] == 1 && block[2] == 1 &&
         shared <= infini_train::simt::kMaxSharedBytes;
}

}  // namespace

mcError_t __mcEnqueue(rt::Error (*function)(const void* arguments), const void* arguments,
                      std::size_t bytes, mcStream_t stream) {
  const auto native = reinterpret_cast<rt::Stream>(stream);
  rt::Error error = Runtime::LaunchKernel(function, arguments, bytes, native);
  if (error == rt::kSuccess && maca_standin::IsLaunchBlocking()) error = emulator::Await(native);
  return static_cast<mcError_t>(error);
}

extern "C" __attribute__((visibility("default"))) void __mcLaunch(
    void (*run)(const void* packet), const void* packet, std::size_t bytes,
    const unsigned int* grid, const unsigned int* block, std::size_t shared, mcStream_t stream) {
  constexpr auto kType = infini::rt::Device::Type::kCpu;
  if (!maca_standin::IsInitialized() || !IsValid(grid, block, shared)) {
    static_cast<void>(rt::detail::RecordError(kType, rt::kErrorInvalidValue));
    return;
  }
  static const bool configured = [] {
    emulator::Options options = emulator::GetOptions();
    options.warp_size = 64;
    emulator::SetOptions(options);
    return true;
  }();
  static_cast<void>(configured);
  Launch launch;
  launch.run_lane = &RunLane;
  launch.op = infini_train::OpId::kCount;
  launch.geometry = {grid[0], grid[1], grid[2], static_cast<int>(block[0]), shared};
  launch.run = run;
  std::vector<std::byte> whole(sizeof(launch) + bytes);
  std::memcpy(whole.data(), &launch, sizeof(launch));
  std::memcpy(whole.data() + sizeof(launch), packet, bytes);
  static_cast<void>(__mcEnqueue(&RunGrid, whole.data(), whole.size(), stream));
}

const char* mcGetErrorString(mcError_t error) {
  switch (static_cast<int>(error)) {
    case mcSuccess:
      return "no error";
    case mcErrorInvalidValue:
      return "invalid argument";
    case mcErrorDeinitialized:
      return "the runtime is not initialized: mcInit comes first";
    case rt::kErrorLaunchFailure: {
      static const std::string& fault = *new std::string(emulator::FaultMessage());
      return fault.c_str();
    }
    default:
      return "";
  }
}
