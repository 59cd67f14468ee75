#include <cstdlib>

#include "native/cpu/api/call.h"

namespace infini::rt::runtime {
namespace {

using cpu::Allocation;
using cpu::Call;
using cpu::Context;
using cpu::MemoryKind;
using Cpu = Runtime<Device::Type::kCpu>;

Allocation Entry(void* ptr, std::size_t size, MemoryKind kind, cpu::DeviceState* device) {
  Allocation entry;
  entry.base = reinterpret_cast<std::uintptr_t>(ptr);
  entry.size = size;
  entry.kind = kind;
  entry.device = device;
  return entry;
}

// The allocation that begins at `ptr`, or nothing.
std::optional<Allocation> Exactly(const void* ptr) {
  auto entry = Context::Get().allocations().Find(ptr);
  if (entry && entry->base != reinterpret_cast<std::uintptr_t>(ptr)) return std::nullopt;
  return entry;
}

// Whether `Free` and `FreeAsync` are for it.
bool IsFreed(const std::optional<Allocation>& entry) {
  return entry && entry->kind != MemoryKind::kPinned && entry->kind != MemoryKind::kMapped;
}

void ReturnToPool(const Allocation& entry, cpu::Stream* stream, std::uint64_t position) {
  cpu::MemoryPool::Block block{reinterpret_cast<void*>(entry.base), entry.pool_capacity};
  entry.device->pool().Free(block, entry.size, stream, position);
}

Error EndGraphLifetime(const Allocation& entry) {
  return entry.graph->live.exchange(false) ? kSuccess : kErrorInvalidValue;
}

cpu::MemoryPool* ResolvePool(MemPool handle) {
  Context& context = Context::Get();
  for (int i = 0; i < context.device_count(); ++i) {
    auto* pool = &context.device(i).pool();
    if (pool == reinterpret_cast<cpu::MemoryPool*>(handle)) return pool;
  }
  return nullptr;
}

}  // namespace

Error Cpu::Malloc(void** ptr, std::size_t size) {
  return Call([&] {
    if (ptr == nullptr) return kErrorInvalidValue;
    Error error = cpu::CheckUnsafeCall();
    if (error != kSuccess) return error;
    *ptr = nullptr;
    if (size == 0) return kSuccess;
    cpu::DeviceState& device = Context::Get().CurrentDevice();
    void* allocated = device.Allocate(size);
    if (allocated == nullptr) {
      device.pool().Trim(0);
      allocated = device.Allocate(size);
    }
    if (allocated == nullptr) return kErrorMemoryAllocation;
    Context::Get().allocations().Insert(Entry(allocated, size, MemoryKind::kDevice, &device));
    *ptr = allocated;
    return kSuccess;
  });
}

Error Cpu::Free(void* ptr) {
  return Call([&] {
    if (ptr == nullptr) return kSuccess;
    Error error = cpu::CheckUnsafeCall();
    if (error != kSuccess) return error;
    auto entry = Exactly(ptr);
    if (!IsFreed(entry)) return kErrorInvalidValue;
    if (entry->kind == MemoryKind::kGraph) return EndGraphLifetime(*entry);
    // Queued work may still use the memory: like CUDA, a free of plain device memory waits for it.
    if (entry->kind == MemoryKind::kDevice) entry->device->Synchronize(/*blocking_only=*/false);
    auto removed = Context::Get().allocations().Remove(ptr);
    if (!removed) return kErrorInvalidValue;
    if (removed->kind == MemoryKind::kPool) {
      ReturnToPool(*removed, nullptr, 0);
    } else {
      removed->device->Deallocate(ptr, removed->size);
    }
    return kSuccess;
  });
}

Error Cpu::MallocHost(void** ptr, std::size_t size) {
  return Call([&] {
    if (ptr == nullptr) return kErrorInvalidValue;
    Error error = cpu::CheckUnsafeCall();
    if (error != kSuccess) return error;
    *ptr = nullptr;
    if (size == 0) return kSuccess;
    void* allocated = cpu::AllocateAligned(size);
    if (allocated == nullptr) return kErrorMemoryAllocation;
    Context::Get().allocations().Insert(Entry(allocated, size, MemoryKind::kPinned, nullptr));
    *ptr = allocated;
    return kSuccess;
  });
}

Error Cpu::FreeHost(void* ptr) {
  return Call([&] {
    if (ptr == nullptr) return kSuccess;
    Error error = cpu::CheckUnsafeCall();
    if (error != kSuccess) return error;
    auto entry = Exactly(ptr);
    if (!entry || entry->kind != MemoryKind::kPinned) return kErrorInvalidValue;
    Context& context = Context::Get();
    for (int i = 0; i < context.device_count(); ++i) {
      context.device(i).Synchronize(/*blocking_only=*/false);
    }
    if (!context.allocations().Remove(ptr)) return kErrorInvalidValue;
    std::free(ptr);
    return kSuccess;
  });
}

Error Cpu::MemGetInfo(std::size_t* free, std::size_t* total) {
  return Call([&] {
    cpu::DeviceState& device = Context::Get().CurrentDevice();
    if (free != nullptr) *free = device.free_memory();
    if (total != nullptr) *total = device.total_memory();
    return kSuccess;
  });
}

Error Cpu::MallocAsync(void** ptr, std::size_t size, Stream stream) {
  return Call([&] {
    if (ptr == nullptr) return kErrorInvalidValue;
    cpu::Stream* target = cpu::Resolve(stream);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    if (size == 0) {
      *ptr = nullptr;
      return kSuccess;
    }
    if (target->capturing.load(std::memory_order_acquire)) {
      return cpu::AllocateInCapture(*target, size, ptr);
    }
    if (target->role() == cpu::Stream::Role::kLegacy) {
      Error error = cpu::CheckLegacyUse(target->device());
      if (error != kSuccess) return error;
    }
    auto block = target->device().pool().Allocate(size, *target);
    if (block.ptr == nullptr) return kErrorMemoryAllocation;
    Allocation entry = Entry(block.ptr, size, MemoryKind::kPool, &target->device());
    entry.pool_capacity = block.capacity;
    Context::Get().allocations().Insert(entry);
    *ptr = block.ptr;
    return kSuccess;
  });
}

Error Cpu::FreeAsync(void* ptr, Stream stream) {
  return Call([&] {
    cpu::Stream* target = cpu::Resolve(stream);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    if (ptr == nullptr) return kSuccess;
    if (target->capturing.load(std::memory_order_acquire)) {
      return cpu::FreeInCapture(*target, ptr);
    }
    auto entry = Exactly(ptr);
    if (!IsFreed(entry)) return kErrorInvalidValue;
    if (entry->kind == MemoryKind::kGraph) return EndGraphLifetime(*entry);
    auto removed = Context::Get().allocations().Remove(ptr);
    if (!removed) return kErrorInvalidValue;
    // The operation carries the waits that the default stream's rules ask for.
    std::uint64_t position = 0;
    Error error = cpu::Submit(*target, cpu::Op::Nop(), &position);
    if (error != kSuccess) {
      Context::Get().allocations().Insert(*removed);
      return error;
    }
    if (removed->kind == MemoryKind::kPool) {
      ReturnToPool(*removed, target, position);
    } else {
      target->WaitUntil(position);
      removed->device->Deallocate(ptr, removed->size);
    }
    return kSuccess;
  });
}

Error Cpu::DeviceGetDefaultMemPool(MemPool* pool, int device) {
  return Call([&] {
    if (pool == nullptr) return kErrorInvalidValue;
    if (!Context::Get().ValidDevice(device)) return kErrorInvalidDevice;
    *pool = reinterpret_cast<MemPool>(&Context::Get().device(device).pool());
    return kSuccess;
  });
}

Error Cpu::MemPoolGetAttribute(MemPool pool, MemPoolAttr attr, void* value) {
  return Call([&] {
    cpu::MemoryPool* target = ResolvePool(pool);
    if (target == nullptr || value == nullptr) return kErrorInvalidValue;
    return target->GetAttribute(attr, value);
  });
}

Error Cpu::MemPoolSetAttribute(MemPool pool, MemPoolAttr attr, void* value) {
  return Call([&] {
    cpu::MemoryPool* target = ResolvePool(pool);
    if (target == nullptr || value == nullptr) return kErrorInvalidValue;
    return target->SetAttribute(attr, value);
  });
}

Error Cpu::MemPoolTrimTo(MemPool pool, std::size_t min_bytes_to_keep) {
  return Call([&] {
    cpu::MemoryPool* target = ResolvePool(pool);
    if (target == nullptr) return kErrorInvalidValue;
    target->Trim(min_bytes_to_keep);
    return kSuccess;
  });
}

}  // namespace infini::rt::runtime
