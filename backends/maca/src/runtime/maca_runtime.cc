#include "runtime/maca_runtime.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "backends/runtime/runtime_device_guard.h"
#include "infini_train_maca/backend.h"
#include "runtime/policy.h"

namespace infini_train::maca {
namespace {

using Base = rt::Runtime<::infini::rt::Device::Type::kMetax>;

/// Blocks that the framework holds.
struct Block {
  std::size_t bytes = 0;
  int device = 0;
};

/// What is known of a device.
struct DeviceMemory {
  std::size_t used = 0;
  std::size_t peak = 0;
  rt::Stream stream = nullptr;  ///< of the asynchronous pool
};

/// Never destroyed: static objects free memory.
struct State {
  std::mutex mutex;
  std::unordered_map<void*, Block> blocks;
  DeviceMemory devices[kMaxDevicesPerType];
};

State& GetState() {
  static State& state = *new State;
  return state;
}

/// The stream in whose order a device's pool is used, made on first use with the pool's policy.
rt::Error PoolStream(int device, rt::Stream* stream) {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  rt::Stream& known = state.devices[device].stream;
  if (known == nullptr) {
    if (GetPolicy().retain_async_pool) {
      rt::MemPool pool = nullptr;
      rt::Error error = Base::DeviceGetDefaultMemPool(&pool, device);
      std::uint64_t everything = UINT64_MAX;
      if (error == rt::kSuccess)
        error = Base::MemPoolSetAttribute(pool, rt::kMemPoolAttrReleaseThreshold, &everything);
      if (error != rt::kSuccess) return error;
    }
    const rt::Error error = Base::StreamCreateWithFlags(&known, rt::kStreamNonBlocking);
    if (error != rt::kSuccess) return error;
  }
  *stream = known;
  return rt::kSuccess;
}

rt::Error MallocFromPool(void** ptr, std::size_t size, int device) {
  rt::Stream stream = nullptr;
  rt::Error error = PoolStream(device, &stream);
  if (error == rt::kSuccess) error = Base::MallocAsync(ptr, size, stream);
  return error == rt::kSuccess ? Base::StreamSynchronize(stream) : error;
}

/// One of the pool's peaks; false where the SDK does not tell.
bool ReadPoolPeak(int device, rt::MemPoolAttr attribute, std::size_t* value) {
  rt::MemPool pool = nullptr;
  std::uint64_t bytes = 0;
  if (Base::DeviceGetDefaultMemPool(&pool, device) != rt::kSuccess ||
      Base::MemPoolGetAttribute(pool, attribute, &bytes) != rt::kSuccess) {
    backend::ForgetLastError<Base>();
    return false;
  }
  *value = bytes;
  return true;
}

void CheckDevice(int device) {
  rt::DeviceProp properties{};
  backend::Check<MacaRuntime>(Base::GetDeviceProperties(&properties, device),
                              "GetDeviceProperties");
}

/// Holds the process's one mutex for copies, where the workarounds ask for it.
std::unique_lock<std::mutex> LockCopies() {
  static std::mutex& mutex = *new std::mutex;
  return GetPolicy().multithread_workarounds ? std::unique_lock(mutex)
                                             : std::unique_lock<std::mutex>();
}

}  // namespace

rt::Error MacaRuntime::Malloc(void** ptr, std::size_t size) {
  if (size == 0 && ptr != nullptr) {
    *ptr = nullptr;
    return rt::kSuccess;
  }
  int device = 0;
  rt::Error error = Base::GetDevice(&device);
  if (error != rt::kSuccess) return error;
  error = GetPolicy().multithread_workarounds ? Base::Malloc(ptr, size)
                                              : MallocFromPool(ptr, size, device);
  if (error != rt::kSuccess) return error;
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  state.blocks[*ptr] = {size, device};
  DeviceMemory& memory = state.devices[device];
  memory.used += size;
  memory.peak = std::max(memory.peak, memory.used);
  return rt::kSuccess;
}

rt::Error MacaRuntime::Free(void* ptr) {
  if (ptr == nullptr) return rt::kSuccess;
  State& state = GetState();
  rt::Stream stream = nullptr;
  {
    const std::lock_guard lock(state.mutex);
    const auto found = state.blocks.find(ptr);
    if (found == state.blocks.end()) return rt::kErrorInvalidValue;
    DeviceMemory& memory = state.devices[found->second.device];
    memory.used -= found->second.bytes;
    stream = memory.stream;
    state.blocks.erase(found);
  }
  if (GetPolicy().multithread_workarounds) return Base::Free(ptr);
  const rt::Error error = Base::FreeAsync(ptr, stream);
  // The pool gives pages back when it is waited for.
  return error == rt::kSuccess ? Base::StreamSynchronize(stream) : error;
}

rt::Error MacaRuntime::MemcpyAsync(void* dst, const void* src, std::size_t count,
                                   rt::MemcpyKind kind, rt::Stream stream) {
  const auto lock = LockCopies();
  return Base::MemcpyAsync(dst, src, count, kind, stream);
}

rt::Error MacaRuntime::MemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                       std::size_t count, rt::Stream stream) {
  const auto lock = LockCopies();
  return Base::MemcpyPeerAsync(dst, dst_device, src, src_device, count, stream);
}

std::string MacaRuntime::ErrorDetail(rt::Error error) {
  switch (error) {
    case rt::kErrorInvalidValue:
    case rt::kErrorMemoryAllocation:
    case rt::kErrorInvalidDevice:
    case rt::kErrorInvalidResourceHandle:
    case rt::kErrorCudartUnloading:
      return {};
    default:
      return mcGetErrorString(static_cast<mcError_t>(error));
  }
}

MemoryPeaks GetMemoryPeaks(int device) {
  const Policy& policy = GetPolicy();
  CheckDevice(device);
  MemoryPeaks peaks;
  if (!policy.multithread_workarounds &&
      ReadPoolPeak(device, rt::kMemPoolAttrUsedMemHigh, &peaks.used) &&
      ReadPoolPeak(device, rt::kMemPoolAttrReservedMemHigh, &peaks.reserved)) {
    return peaks;
  }
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  return {state.devices[device].peak, state.devices[device].peak};
}

void ResetMemoryPeaks(int device) {
  const Policy& policy = GetPolicy();
  CheckDevice(device);
  if (!policy.multithread_workarounds) {
    rt::MemPool pool = nullptr;
    std::uint64_t zero = 0;
    if (Base::DeviceGetDefaultMemPool(&pool, device) != rt::kSuccess ||
        Base::MemPoolSetAttribute(pool, rt::kMemPoolAttrUsedMemHigh, &zero) != rt::kSuccess ||
        Base::MemPoolSetAttribute(pool, rt::kMemPoolAttrReservedMemHigh, &zero) != rt::kSuccess) {
      backend::ForgetLastError<Base>();
    }
  }
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  state.devices[device].peak = state.devices[device].used;
}

}  // namespace infini_train::maca
