#include "metax/sdk.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include <mcr/mc_runtime.h>

#ifndef STANDIN_WARP_SIZE
#define STANDIN_WARP_SIZE 64
#endif

namespace {

std::atomic<bool> initialized{false};
std::atomic<bool> launch_blocking{false};
/// Faults of hardware that were seen and that this library repeats where MACA_STANDIN_FAULTS is
/// "threads" at mcInit: calls for stream-ordered memory, or asynchronous copies, by several threads
/// at once.
std::atomic<bool> has_thread_faults{false};
std::atomic<bool> is_broken{false};

/// Calls of one kind that are under way.
std::atomic<int> allocations{0};
std::atomic<int> copies{0};

/// Refuses what comes before mcInit, and fails as hardware does.
class MacaAdmission {
 public:
  explicit MacaAdmission(const char* name) {
    if (!initialized) {
      error = mcErrorDeinitialized;
      return;
    }
    if (!has_thread_faults) return;
    const std::string_view call = name;
    const bool is_copy = call == "MemcpyAsync";
    if (is_copy && is_broken) error = mcErrorInvalidValue;
    if (is_copy) {
      running_ = &copies;
    } else if (call == "MallocAsync" || call == "FreeAsync") {
      running_ = &allocations;
    } else {
      return;
    }
    bool is_alone = running_->fetch_add(1) == 0;
    // Long enough for another thread to come.
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(300);
    while (is_alone && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
      is_alone = *running_ == 1;
    }
    if (is_alone) return;
    is_broken = true;
    if (is_copy) error = mcErrorInvalidValue;
  }
  ~MacaAdmission() {
    if (running_ != nullptr) --*running_;
  }
  MacaAdmission(const MacaAdmission&) = delete;
  MacaAdmission& operator=(const MacaAdmission&) = delete;

  mcError_t error = mcSuccess;

 private:
  std::atomic<int>* running_ = nullptr;
};

}  // namespace

#define STANDIN_ADMISSION MacaAdmission
#include "cuda_style/definitions.inc"

mcError_t mcInit(unsigned int flags) {
  if (flags != 0) return mcErrorInvalidValue;
  if (initialized.exchange(true)) return mcSuccess;
  const auto is = [](const char* name, std::string_view wanted) {
    const char* value = std::getenv(name);
    return value != nullptr && value == wanted;
  };
  has_thread_faults = is("MACA_STANDIN_FAULTS", "threads");
  launch_blocking = is("MACA_LAUNCH_BLOCKING", "1");
  return mcSuccess;
}

bool maca_standin::IsInitialized() {
  return initialized;
}

bool maca_standin::IsLaunchBlocking() {
  return launch_blocking;
}

mcError_t mcGetDeviceProperties(mcDeviceProp_t* prop, int device) {
  runtime::DeviceProp own{};
  const mcError_t error =
      STANDIN_CALL(GetDeviceProperties, prop != nullptr ? &own : nullptr, device);
  if (error != mcSuccess) return error;
  prop->totalGlobalMem = own.total_global_mem;
  prop->warpSize = STANDIN_WARP_SIZE;
  prop->maxThreadsPerBlock = 1024;
  return mcSuccess;
}

mcError_t mcDeviceGetAttribute(int* value, mcDeviceAttribute_t attribute, int device) {
  runtime::DeviceProp own{};
  const mcError_t error = STANDIN_CALL(GetDeviceProperties, &own, device);
  if (error != mcSuccess) return error;
  switch (attribute) {
    case mcDeviceAttributeMultiProcessorCount:
      *value = own.multi_processor_count;
      return mcSuccess;
    case mcDeviceAttributeWarpSize:
      *value = STANDIN_WARP_SIZE;
      return mcSuccess;
    case mcDeviceAttributeMaxThreadsPerBlock:
      *value = 1024;
      return mcSuccess;
    case mcDeviceAttributeMaxSharedMemoryPerBlock:
      *value = 65536;
      return mcSuccess;
  }
  return mcErrorInvalidValue;
}

mcError_t mcDeviceGetName(char* name, int length, int device) {
  runtime::DeviceProp own{};
  const mcError_t error = STANDIN_CALL(GetDeviceProperties, &own, device);
  if (error != mcSuccess) return error;
  std::strncpy(name, own.name, static_cast<std::size_t>(length) - 1);
  name[length - 1] = '\0';
  return mcSuccess;
}

#ifndef STANDIN_EXPLAINS_ERRORS
const char* mcGetErrorString(mcError_t) {
  return "";
}
#endif
