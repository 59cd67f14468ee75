#include <sys/mman.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "native/cpu/api/call.h"

namespace infini::rt::runtime {
namespace {

using cpu::Call;
using cpu::Context;
using cpu::MemoryKind;
using Cpu = Runtime<Device::Type::kCpu>;

constexpr std::size_t kPiece = std::size_t{2} << 20;

struct Range {
  std::size_t size = 0;
  cpu::DeviceState* device = nullptr;
  std::vector<bool> mapped;  // by piece
};

// Ranges by address. Never destroyed: work may outlive main().
struct Ranges {
  std::mutex mutex;
  std::map<std::uintptr_t, Range> by_address;
};

Ranges& GetRanges() {
  static Ranges& ranges = *new Ranges;
  return ranges;
}

// Pieces of a range, all of them with memory or all without.
struct Pieces {
  Range* range = nullptr;
  std::size_t first = 0;
  std::size_t count = 0;

  void Mark(bool mapped) const {
    for (std::size_t i = first; i < first + count; ++i)
      range->mapped[i] = mapped;
  }
};

// The pieces at `ptr`, which are all mapped or all not; no range if there are none such. Call with
// the lock held.
Pieces FindPieces(Ranges& ranges, const void* ptr, std::size_t size, bool mapped) {
  const auto address = reinterpret_cast<std::uintptr_t>(ptr);
  const auto after = ranges.by_address.upper_bound(address);
  if (after == ranges.by_address.begin() || size == 0) return {};
  auto& [base, range] = *std::prev(after);
  const std::size_t offset = address - base;
  if (offset >= range.size || size > range.size - offset) return {};
  if (offset % kPiece != 0 || size % kPiece != 0) return {};
  const Pieces pieces{&range, offset / kPiece, size / kPiece};
  for (std::size_t i = pieces.first; i < pieces.first + pieces.count; ++i)
    if (range.mapped[i] != mapped) return {};
  return pieces;
}

// Addresses that nothing may touch; null if there are not enough.
void* ReservePages(std::size_t size) {
  void* all =
      ::mmap(nullptr, size + kPiece, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(all);
  const std::size_t skipped = -reinterpret_cast<std::uintptr_t>(start) % kPiece;
  if (skipped > 0) ::munmap(start, skipped);
  ::munmap(start + skipped + size, kPiece - skipped);
  return start + skipped;
}

}  // namespace

Error Cpu::MemGetAllocationGranularity(std::size_t* granularity) {
  return Call([&] {
    if (granularity == nullptr) return kErrorInvalidValue;
    *granularity = kPiece;
    return kSuccess;
  });
}

Error Cpu::MemAddressReserve(void** ptr, std::size_t size) {
  return Call([&] {
    if (ptr == nullptr || size == 0 || size % kPiece != 0) return kErrorInvalidValue;
    *ptr = nullptr;
    if (size > SIZE_MAX - kPiece) return kErrorMemoryAllocation;
    Context& context = Context::Get();
    Range range{size, &context.CurrentDevice(), std::vector<bool>(size / kPiece)};
    void* pages = ReservePages(size);
    if (pages == nullptr) return kErrorMemoryAllocation;
    cpu::Allocation entry;
    entry.base = reinterpret_cast<std::uintptr_t>(pages);
    entry.size = size;
    entry.kind = MemoryKind::kMapped;
    entry.device = range.device;
    Ranges& ranges = GetRanges();
    const std::lock_guard lock(ranges.mutex);
    ranges.by_address.emplace(entry.base, std::move(range));
    context.allocations().Insert(entry);
    *ptr = pages;
    return kSuccess;
  });
}

Error Cpu::MemAddressFree(void* ptr, std::size_t size) {
  return Call([&] {
    Ranges& ranges = GetRanges();
    const std::lock_guard lock(ranges.mutex);
    const Pieces pieces = FindPieces(ranges, ptr, size, /*mapped=*/false);
    if (pieces.count == 0 || size != pieces.range->size) return kErrorInvalidValue;
    Context::Get().allocations().Remove(ptr);
    ranges.by_address.erase(reinterpret_cast<std::uintptr_t>(ptr));
    ::munmap(ptr, size);
    return kSuccess;
  });
}

Error Cpu::MemMap(void* ptr, std::size_t size) {
  return Call([&] {
    Ranges& ranges = GetRanges();
    const std::lock_guard lock(ranges.mutex);
    const Pieces pieces = FindPieces(ranges, ptr, size, /*mapped=*/false);
    if (pieces.count == 0) return kErrorInvalidValue;
    if (!pieces.range->device->Charge(size)) return kErrorMemoryAllocation;
    if (::mprotect(ptr, size, PROT_READ | PROT_WRITE) != 0) {
      pieces.range->device->Discharge(size);
      return kErrorMemoryAllocation;
    }
    ::madvise(ptr, size, MADV_HUGEPAGE);  // Only a hint; a kernel without them refuses.
    pieces.Mark(true);
    return kSuccess;
  });
}

Error Cpu::MemUnmap(void* ptr, std::size_t size) {
  return Call([&] {
    Ranges& ranges = GetRanges();
    const std::lock_guard lock(ranges.mutex);
    const Pieces pieces = FindPieces(ranges, ptr, size, /*mapped=*/true);
    if (pieces.count == 0) return kErrorInvalidValue;
    // In place of the pages: nobody else may get the addresses in between.
    if (::mmap(ptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
               0) == MAP_FAILED) {
      return kErrorMemoryAllocation;
    }
    pieces.range->device->Discharge(size);
    pieces.Mark(false);
    return kSuccess;
  });
}

}  // namespace infini::rt::runtime
