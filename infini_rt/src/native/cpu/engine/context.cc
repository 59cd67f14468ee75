#include "native/cpu/engine/context.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "native/cpu/engine/device_state.h"
#include "native/cpu/engine/stream.h"

namespace infini::rt::cpu {
namespace {

constexpr int kMaxDevices = 64;

constinit thread_local int thread_device = 0;

// The count that INFINI_RT_CPU_DEVICES gives; anything but a number from 1 to 64 counts as 1.
int DeviceCountFromEnvironment() {
  const char* value = std::getenv("INFINI_RT_CPU_DEVICES");
  if (value == nullptr) return 1;
  std::string_view text(value);
  int count = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  bool valid = error == std::errc{} && end == text.data() + text.size();
  return valid && count >= 1 && count <= kMaxDevices ? count : 1;
}

std::size_t SystemMemory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Closes the thread's default streams when the thread ends; queued work still completes.
struct ThreadStreams {
  std::vector<Stream*> streams;
  ~ThreadStreams() {
    for (Stream* stream : streams) {
      if (stream != nullptr) stream->Close();
    }
  }
};

}  // namespace

Context& Context::Get() {
  static Context& context = *new Context;
  return context;
}

Context::Context() {
  int count = DeviceCountFromEnvironment();
  std::size_t memory = SystemMemory() / static_cast<std::size_t>(count);
  for (int i = 0; i < count; ++i)
    devices_.push_back(std::make_unique<DeviceState>(i, memory));
  std::atexit([] { Context::Get().Stop(); });
}

int Context::current_device() {
  return thread_device;
}

void Context::set_current_device(int index) {
  thread_device = index;
}

Stream& Context::PerThreadStream() {
  static thread_local ThreadStreams thread_streams;
  auto& streams = thread_streams.streams;
  auto index = static_cast<std::size_t>(current_device());
  if (streams.size() <= index) streams.resize(index + 1);
  if (streams[index] == nullptr) {
    streams[index] = CurrentDevice().CreateStream(Stream::Role::kBlocking, 0);
  }
  return *streams[index];
}

void Context::SetFault(runtime::Error error) {
  runtime::Error expected = runtime::kSuccess;
  fault_.compare_exchange_strong(expected, error);
}

void Context::Stop() {
  stopping_.store(true);
  fault_.store(runtime::kErrorCudartUnloading);
  // Streams are woken outside the lock on their list, which enqueuing takes while it holds a
  // stream.
  std::vector<RefPtr<Stream>> streams;
  for (auto& device : devices_) {
    device->ForEachStream([&](Stream& stream) { streams.emplace_back(&stream); });
  }
  for (auto& stream : streams)
    stream->Wake();
  workers_.Stop();
}

}  // namespace infini::rt::cpu
