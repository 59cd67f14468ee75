#include "backends/simt/emulator/shared_memory.h"

#include <cstring>
#include <new>

#include <fmt/format.h>

#include "backends/simt/emulator/block_runner.h"
#include "backends/simt/emulator/fault.h"
#include "backends/simt/emulator/options.h"

namespace infini_train::simt::emulator {
namespace {

constexpr std::size_t kAlignment = 16;
/// All bits set is NaN in every floating type, and -1 in the integers.
constexpr int kUninitialised = 0xFF;

/// The shared memory of a block of a large device.
constexpr std::size_t kLargestBytes = 2 * kMaxSharedBytes;

constexpr std::size_t Align(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void SharedMemory::FreeBytes::operator()(std::byte* bytes) const {
  ::operator delete[](bytes, std::align_val_t{kAlignment});
}

SharedMemory::SharedMemory()
    : data_(
          static_cast<std::byte*>(::operator new[](kLargestBytes, std::align_val_t{kAlignment}))) {}

std::size_t SharedMemory::MaxBytes() {
  return GetOptions().warp_size == kMaxWarpSize ? kMaxSharedBytes : kLargestBytes;
}

void SharedMemory::BeginLaunch(std::size_t dynamic_bytes) {
  dynamic_bytes_ = dynamic_bytes;
  used_ = Align(dynamic_bytes);
  arrays_.clear();
}

void SharedMemory::BeginBlock() {
  std::memset(data_.get(), kUninitialised, used_);
  if (lane.check_races) races_.BeginBlock(lane.block_size);
}

std::byte* SharedMemory::Static(const char* tag, const char* name, std::size_t bytes,
                                const Place& place) {
  for (const Array& array : arrays_) {
    if (array.tag == tag) return array.data;
  }
  if (bytes > MaxBytes() - used_) {
    ThrowFault(fmt::format("shared memory exhausted: '{}' needs {} bytes, {} of {} are in use",
                           name, bytes, used_, MaxBytes()),
               place);
  }
  std::byte* data = data_.get() + used_;
  used_ += Align(bytes);
  std::memset(data, kUninitialised, bytes);
  arrays_.push_back({tag, data});
  return data;
}

std::byte* StaticShared(const char* tag, const char* name, std::size_t bytes, const Place& place) {
  return BlockRunner::OfThread().shared_memory().Static(tag, name, bytes, place);
}

DynamicSharedMemory DynamicShared() {
  return BlockRunner::OfThread().shared_memory().Dynamic();
}

void ThrowOutOfShared(const char* name, std::int64_t index, std::int64_t count, std::int64_t size,
                      const Place& place) {
  const std::string what = count == 1 ? fmt::format("index {}", index)
                                      : fmt::format("elements {} to {}", index, index + count - 1);
  ThrowFault(fmt::format("shared memory out of bounds: {} of '{}', which has {} elements", what,
                         name, size),
             place);
}

void ThrowMisalignedShared(const char* name, std::int64_t index, std::int64_t count,
                           const Place& place) {
  ThrowFault(fmt::format("misaligned access to shared memory: {} elements from index {} of '{}'",
                         count, index, name),
             place);
}

void RecordSharedAccess(AccessKind kind, const void* address, std::size_t bytes, const char* name,
                        const Place& place) {
  SharedMemory& memory = BlockRunner::OfThread().shared_memory();
  memory.races().OnAccess(kind, memory.OffsetOf(address), bytes, name, place);
}

}  // namespace infini_train::simt::emulator
